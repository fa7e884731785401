-- barrier/open: the action of the last to come has run: let everybody pass, or break the barrier.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  not used
-- ARGV  ticket      the ticket of the last party
--       generation  the generation in which it arrived
--       ok          1 if the action went well, 0 if the barrier is to break
--       notafter    server µs after which the request changes nothing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED if that generation has tripped, BROKEN if it is broken, now or before; REFUSED,
--       with forgotten in states, if it is not known any more, or this ticket does not run its action
-- RETRY safe: the outcome of a generation never changes, and is told again

-- @include lib/barrier.lua
local now = base.now()
if now > tonumber(ARGV[4]) then return { base.LATE, now } end

local s = barrier.read(KEYS, now)
local generation = tonumber(ARGV[2])
barrier.settle(s)
local outcome = barrier.of(s, generation)
if outcome == 'present' and s.acting == ARGV[1] then
  if ARGV[3] == '1' then barrier.trip(s) else barrier.breaks(s) end
  outcome = ARGV[3] == '1' and 'granted' or 'broken'
end
if outcome == 'granted' then return barrier.finish(s, base.GRANTED, 0, generation) end
if outcome == 'broken' then return barrier.finish(s, base.BROKEN, -1, generation) end
return barrier.finish(s, base.REFUSED, -1, 0, { 'forgotten' })
