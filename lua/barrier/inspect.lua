-- barrier/inspect: who has come, and whether the barrier is broken. It changes nothing.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  not used
-- ARGV  most      how many of the parties that have come to tell
-- REPLY {now, token, limit, used, holders, waiting, {ticket, arrival, …}, {suspect, …}, state}
--       token is the generation, limit the parties, used those that have come; holders has for each of
--       them: ticket, until, since, permits, phase (waiting or acting), token, count, who; waiting is used
--       again; state is unset, open (nobody broke it) or broken, also where the next request that may write breaks it
-- RETRY safe: it only reads

-- @include lib/barrier.lua
local s = barrier.read(KEYS, base.now())
local broken = barrier.fails(s)
local came = broken and 0 or s.arrived
local holders, generation = {}, base.int(s.generation)
local parties = came > 0 and tonumber(ARGV[1]) > 0 and redis.call('ZRANGE', s.leases, 0, ARGV[1] - 1, 'WITHSCORES') or {}
for i = 1, #parties, 2 do
  local since, who = string.match(redis.call('HGET', s.arrivals, parties[i]) or '', '^%d+ (%d+) (.*)$')
  local about = { parties[i], base.int(tonumber(parties[i + 1])), since or '0', '1',
    s.acting == parties[i] and 'acting' or 'waiting', generation, '1', who or '' }
  for _, field in ipairs(about) do holders[#holders + 1] = field end
end
return { s.now, generation, s.parties, came, holders, came, {}, {},
  s.generation == 0 and 'unset' or (broken and 'broken' or 'open') }
