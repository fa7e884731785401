-- semaphore/inspect: who holds and who waits. It changes nothing.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  most      how many holders, and how many tickets of the queue, to tell
--       stated    the limit of a lock that was never used
-- REPLY {now, token, limit, used, holders, waiting, {ticket, arrival, …}, {suspect, …}, state}
--       used is without the first thousand holds that are over; holders has for each hold that is not: ticket,
--       until, since, permits, phase, token, count, who
-- RETRY safe: it only reads

-- @include lib/base.lua
local PHASES = { g = 'granted', r = 'granted', h = 'held', f = 'final' }
local now = base.now()
local h = redis.call('HMGET', KEYS[1], 'limit', 'used', 'token')
local used = tonumber(h[2] or 0)
local over = redis.call('ZRANGE', KEYS[4], '1', base.int(now), 'BYSCORE', 'LIMIT', 0, 1000)
local records = #over > 0 and redis.call('HMGET', KEYS[1], unpack(over)) or {}
for _, record in ipairs(records) do
  used = used - (string.match(record or '', '^%d+') or 0)
end
local holders = {}
local list = redis.call('ZRANGE', KEYS[4], base.int(now + 1), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
for i = 1, #list, 2 do
  local n, token, phase, since, who =
    string.match(redis.call('HGET', KEYS[1], list[i]) or '', '^(%d+):(%d+):%d+:(%a):(%d+):(.*)$')
  if n then
    for _, field in ipairs({ list[i], list[i + 1], since, n, PHASES[phase] or phase, token, '1', who }) do
      holders[#holders + 1] = field
    end
  end
end
return { now, h[3] or '0', tonumber(h[1] or ARGV[2]), used, holders,
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[3], '-inf', base.int(now), 'BYSCORE', 'LIMIT', 0, ARGV[1]), '' }
