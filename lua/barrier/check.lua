-- barrier/check: the look of one client after its tickets that have arrived; it lets their leases last.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  not used
-- ARGV  client    who looks; not used
--       mode      hears, proven or deaf: all the same, as nothing is sent to one client
--       notafter  server µs after which the check changes nothing
--       floor     not used
--       counted   not used
--       then for each ticket: the ticket and the generation in which it has arrived
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE; states says of each ticket: queued with its index, granted, broken or forgotten;
--       until is the end of the earliest of the leases, 0 if nobody waits
-- RETRY safe: it only lets leases last longer

-- @include lib/barrier.lua
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = barrier.read(KEYS, now)
barrier.settle(s)
local states = {}
gather.open(s)
for i = 6, #ARGV, 2 do
  local ticket = ARGV[i]
  local state = barrier.of(s, tonumber(ARGV[i + 1]))
  if state == 'present' then
    local here = redis.call('HGET', s.arrivals, ticket)
    if here then
      barrier.prolong(s, ticket)
      state = 'queued ' .. string.match(here, '^%d+')
    else
      state = 'forgotten'
    end
  end
  states[#states + 1] = state
end
return barrier.finish(s, base.DONE, -1, s.generation, states)
