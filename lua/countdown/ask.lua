-- countdown/ask: is the latch open? Nobody keeps a place: all who wait hear one channel.
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  ticket    client:number:kind:permits:lease:grant; not used
--       mode      try: BUSY where the others are told to wait; look, wait: the same
--       notafter  server µs after which the ask changes nothing
--       arrival   the generation that an earlier ask of this ticket answered, or 0
--       head      not used
--       floor     not used
--       counted   1 if subscribers can be counted
--       phase     not used
--       who       not used
--       early     ms for which a latch that is not set is awaited; nothing: it is not
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       GRANTED if the latch is open, or was since that generation; WAITING or BUSY if it is closed or
--       awaited, with the count in place, the generation in arrival and the number of waiting clients in
--       waiting; UNSET if there is none; REFUSED, with the state forgotten, if the latch that this ticket has seen is
--       gone, also where there is another one now
-- RETRY safe: it only lets the keys live longer, and where a latch is awaited already it begins no other

-- @include lib/latch.lua
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = latch.read(KEYS, now)
local state = latch.of(s, tonumber(ARGV[4]))
if state == 'unset' and ARGV[10] then
  latch.await(s, tonumber(ARGV[10]))
  state = 'closed'
end
latch.keep(s)
if state == 'forgotten' then return gather.reply(s, base.REFUSED, -1, 0, 0, { state }) end
if state == 'unset' then return gather.reply(s, base.UNSET) end
if state == 'open' then return gather.reply(s, base.GRANTED, 0, 0, s.generation) end
return gather.reply(s, ARGV[2] == 'try' and base.BUSY or base.WAITING, s.count,
  gather.hearing(s, ARGV[7]), s.generation)
