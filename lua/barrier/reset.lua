-- barrier/reset: break the present generation if parties wait in it, and begin a new one.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  ended or repeated tickets, and resets, by server µs until which they are known
-- ARGV  id        client:number of the request, the same when it is repeated
--       notafter  server µs after which the request changes nothing
--       repeats   ms for which the request may come again
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE; place is the number of parties for whom this has broken the barrier
-- RETRY safe: a request that had its effect is known by its id, and has none again

-- @include lib/barrier.lua
local now = base.now()
if now > tonumber(ARGV[2]) then return { base.LATE, now } end

local s = barrier.read(KEYS, now)
local known = gather.known(s, ARGV[1])
barrier.settle(s)
local waited = 0
if s.generation ~= 0 then
  gather.open(s)
  s.note, s.repeats = ARGV[1], ARGV[3]
  if not known and not s.broken and s.arrived > 0 then
    waited = s.arrived
    barrier.breaks(s)
  end
  if not known and s.broken then barrier.turn(s, 'B') end
end
return barrier.finish(s, base.DONE, waited, s.generation)
