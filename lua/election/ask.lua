-- election/ask: is it still as it was? Nobody keeps a place: all who observe hear one channel.
--
-- KEYS  lock      hash  who leads, until when, what was proclaimed
-- ARGV  ticket    client:number:kind:permits:lease:grant; not used
--       mode      not used: look and wait are the same
--       notafter  server µs after which the ask changes nothing; not used, as it never does
--       arrival   not used
--       head      not used
--       floor     not used
--       counted   1 if subscribers can be counted
--       phase     not used
--       who       not used
--       seen      the generation that the client knows
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       GRANTED if it is another generation, WAITING if not; arrival is the present one, until the end of the
--       leader's lease or 0, waiting the number of clients that observe
-- RETRY safe: it only reads

-- @include lib/leader.lua
local s = leader.read(KEYS[1], base.now())
return leader.reply(s, s.generation == tonumber(ARGV[10]) and base.WAITING or base.GRANTED, ARGV[7])
