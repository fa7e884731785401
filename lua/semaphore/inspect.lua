-- semaphore/inspect: who holds and who waits. It changes nothing.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  most      how many holders, and how many tickets of the queue, to tell
--       stated    the limit of a lock that was never used
-- REPLY {now, token, limit, used, holders, waiting, {ticket, arrival, …}, {suspect, …}, state, stated}
--       used is without the first thousand holds that are over; holders has for each hold that is not: ticket,
--       until, since, permits, phase, token, count, who; stated is the number of the newest client, 0 if there is none. Permits
--       that rest have a ticket of kind z. The state is how the write hold before the present one ended, or the last, as
--       "!how:token"; empty, if it was released
-- RETRY safe: it only reads

-- @include lib/base.lua
local PHASES = { g = 'granted', r = 'granted', h = 'held', f = 'final', x = 'expired' }
local now = base.now()
local h = redis.call('HMGET', KEYS[1], 'limit', 'used', 'token', 'stated', 'previous')
if of_another(h[1]) then error(other_version(number_of(h[1]))) end
local used = tonumber(h[2] or 0)
local over = redis.call('ZRANGE', KEYS[4], '1', base.int(now), 'BYSCORE', 'LIMIT', 0, 1000)
local records = #over > 0 and redis.call('HMGET', KEYS[1], unpack(over)) or {}
for _, record in ipairs(records) do
  used = used - (string.match(record or '', '^%d+') or 0)
end
local holders = {}
for i, record in ipairs(records) do
  -- It ran out, and nobody has looked since.
  local n, token, since, least, who = string.match(record or '', '^(%d+):(%d+):%d+:%a:(%d+):~(%d+)~(.*)$')
  local ends = n and math.min(since, now) + least * 1000 or 0
  if ends > now then
    used = used + n
    for _, field in ipairs({ string.match(over[i], '^[^:]*:[^:]*:') .. 'z:' .. string.match(over[i], ':(%d+):%d+:%d+$') .. ':0:0', base.int(ends), since, n, 'expired', token, '1', who }) do
      holders[#holders + 1] = field
    end
  end
end
local list = redis.call('ZRANGE', KEYS[4], base.int(now + 1), '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
for i = 1, #list, 2 do
  local n, token, phase, since, who =
    string.match(redis.call('HGET', KEYS[1], list[i]) or '', '^(%d+):(%d+):%d+:(%a):(%d+):(.*)$')
  if n then
    who = string.match(who, '^~%d+~(.*)$') or who
    local ends = base.int(tonumber(list[i + 1])) -- A server may write a score in short, as 9.4e+14.
    for _, field in ipairs({ list[i], ends, since, n, PHASES[phase] or phase, token, '1', who }) do
      holders[#holders + 1] = field
    end
  end
end
local of, how = string.match(h[5] or '', '^(%d+):(%a+:%d+)$')
local state = (of == '0' or of and of == h[3] and used > 0) and '!' .. how or ''
return { now, h[3] or '0', tonumber(h[1] or ARGV[2]), used, holders,
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[3], '-inf', base.int(now), 'BYSCORE', 'LIMIT', 0, ARGV[1]), state, tonumber(h[4] or 0) }
