-- countdown/down: count down by one, and open the latch at 0. It is a request without a ticket (lib/once).
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  none
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the count that is left in place and the generation in arrival; UNSET if there
--       is no latch
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/latch.lua
local s = latch.read(KEYS, base.now())
if not s.set then return gather.reply(s, base.UNSET) end

-- First what is accepted when memory is full: who counts down gives others their way.
gather.open(s)
local opens = false
if s.count > 0 then
  s.count = s.count - 1
  opens = s.count == 0
  redis.call('HSET', s.lock, 'count', base.int(s.count))
end
if opens then gather.tell(s, 'O ' .. base.int(s.generation)) end
return gather.reply(s, base.DONE, s.count, 0, s.generation)
