-- barrier/bury: a dead client's parties will not come: if one of them waits, the barrier breaks for all. Its requests that
-- are still under way are refused.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  ended or repeated tickets, by server µs until which they are known
--       grave     hash  that the client is dead
-- ARGV  client    who is dead
--       lasts     ms for which its requests are refused
--       floor     not used
--       counted   not used
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the tickets in states, if this has broken the generation; else REFUSED
-- RETRY safe: a second call finds the generation broken

-- @include lib/barrier.lua
-- @include lib/grave.lua
local s = barrier.read(KEYS, base.now())
redis.call('ZCARD', s.calls) -- A key of another type ends the script here.
gather.open(s)
grave.mark(KEYS[6], ARGV[2])
barrier.settle(s)
local here = {}
if s.generation ~= 0 and not s.broken then
  for _, ticket in ipairs(redis.call('ZRANGE', s.leases, 0, -1)) do
    if grave.has(ARGV[1], ticket) then here[#here + 1] = ticket end
  end
end
if #here > 0 then barrier.breaks(s) end
return barrier.finish(s, #here > 0 and base.DONE or base.REFUSED, -1, 0, here)
