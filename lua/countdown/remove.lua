-- countdown/remove: delete the latch. Its waiters get an error, not a pass. It is a request without a ticket (lib/once).
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  token     only if it is of this generation; 0 for any
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the count that was left in place, or REFUSED
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/latch.lua
local s = latch.read(KEYS, base.now())
local wanted = tonumber(ARGV[1])
if s.generation == 0 or (wanted ~= 0 and wanted ~= s.generation) then return gather.reply(s, base.REFUSED) end
redis.call('DEL', s.lock)
gather.tell(s, 'B ' .. base.int(s.generation))
return gather.reply(s, base.DONE, s.count, 0, s.generation)
