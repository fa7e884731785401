-- barrier/reset: break the present generation if parties wait in it, and begin a new one. It is a request without a ticket
-- (lib/once).
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  not used
-- ARGV  none
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE; place is the number of parties for whom this has broken the barrier
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/barrier.lua
local s = barrier.read(KEYS, base.now())
barrier.settle(s)
local waited = 0
if s.generation ~= 0 then
  gather.open(s)
  if not s.broken and s.arrived > 0 then
    waited = s.arrived
    barrier.breaks(s)
  end
  if s.broken then barrier.turn(s, 'B') end
end
return barrier.finish(s, base.DONE, waited, s.generation)
