-- election/check: the look of one client that observes.
--
-- KEYS  lock      hash  who leads, until when, what was proclaimed
-- ARGV  client    who looks; not used
--       mode      hears, proven or deaf: all the same, as nothing is sent to one client
--       notafter  server µs after which the check changes nothing; not used, as it never does
--       floor     not used
--       counted   1 if subscribers can be counted
--       then for each ticket: the ticket and the generation that it knows
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, arrival the present generation, until the end of the leader's lease or 0; states says of each
--       ticket: granted if there is another generation than it knows, else queued
-- RETRY safe: it only reads

-- @include lib/leader.lua
local s = leader.read(KEYS[1], base.now())
local states = {}
for i = 7, #ARGV, 2 do
  states[#states + 1] = tonumber(ARGV[i]) == s.generation and 'queued' or 'granted'
end
return leader.reply(s, base.DONE, ARGV[5], states)
