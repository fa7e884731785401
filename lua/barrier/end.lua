-- barrier/end: a party goes before all have come: timed out or cancelled. It breaks the barrier for all.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  ended or repeated tickets, by server µs until which they are known
-- ARGV  ticket    client:number:kind:permits:lease:grant
--       token     only if it has arrived in this generation; 0 for any
--       floor     not used
--       counted   not used
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE if this has broken the generation, REFUSED if not; then states says what became of
--       the ticket: granted or broken, or forgotten, if nothing is known of it
-- RETRY safe: a second call finds the generation broken; asks of this ticket do not arrive any more

-- @include lib/barrier.lua
local s = barrier.read(KEYS, base.now())
local here = redis.call('HGET', s.arrivals, ARGV[1])
local before = not here and redis.call('HGET', s.last, ARGV[1])
local mine = here and s.generation or (before and s.generation - 1)
local wanted = tonumber(ARGV[2])
redis.call('ZCARD', s.calls) -- A key of another type ends the script here.
gather.open(s)
barrier.settle(s)
-- An ask of this ticket that is still under way must not arrive.
s.note, s.repeats = barrier.gone(ARGV[1]), barrier.GHOST_MS
if not mine or s.generation == 0 or (wanted ~= 0 and wanted ~= mine) then
  return barrier.finish(s, base.REFUSED, -1, 0, { 'forgotten' })
end
local state = barrier.of(s, mine)
if state ~= 'present' then return barrier.finish(s, base.REFUSED, -1, mine, { state }) end
barrier.breaks(s)
return barrier.finish(s, base.DONE, -1, mine)
