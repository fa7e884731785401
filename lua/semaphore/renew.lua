-- semaphore/renew: let a hold last for another lease. It never revives one that has ended.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       holders   zset  tickets that hold, by the end of their leases
--       queue     zset  tickets by arrival. Only if the holder wants to be told when somebody waits, and with suspects; else absent
--       suspects  zset  clients that let a lease run out, by time of the mark. Only if the permits are to stay taken; else absent
-- ARGV  ticket    whose hold it is
--       token     the token of the hold
--       lease     ms from now until the end of the lease
--       phase     held, or final if this is the last renewal
--       who       what operators are told of the client; ahead of that "~least~" if the permits are to stay taken for that many
--                 ms from the grant, whatever becomes of the hold
--       notafter  server µs after which the renewal changes nothing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED, or REFUSED with the reason in states: expired, forced, died or forgotten; the flag WANTED with
--       the queue, if somebody waits: else its client will be told by message
-- RETRY safe: a second call prolongs from its own time

-- @include lib/base.lua
local WANTED = 64
local MOST = 4096 -- characters of clients that are told by message: the others by their renewals
local now = base.now()
if now > tonumber(ARGV[6]) then return { base.LATE, now } end

local ticket = ARGV[1]
local h = redis.call('HMGET', KEYS[1], ticket, 'kept', 'forced', 'lapsed', KEYS[3] and 'wants' or 'kept')
local wanted = KEYS[3] and redis.call('ZCARD', KEYS[3]) > 0
local ends = tonumber(redis.call('ZSCORE', KEYS[2], ticket) or 0)
local permits, token, since = string.match(h[1] or '', '^(%d+):(%d+):%d+:%a:(%d+):')
if token ~= ARGV[2] or ends <= now then
  local why = h[1] and ends > 0 and 'expired' or h[3] == ticket and 'forced' or h[4] == ticket and 'expired'
    or redis.call('HGET', KEYS[1], 'died') == string.match(ticket, '^[^:]*') and 'died' or 'forgotten'
  return { base.REFUSED, now, tonumber(token or 0), 0, -1, 0, 0, 0, 0, 0, {}, { why } }
end
ends = now + ARGV[3] * 1000
-- PEXPIRE is accepted when memory is full, and so is what a script writes after it. It shortens nobody's hold.
local last = tonumber(redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] or 0) -- Others may hold for longer.
local lives = base.int((math.max(tonumber(h[2] or 0), math.max(ends, last) + SPARE_US) - now) / 1000)
redis.call('PEXPIRE', KEYS[1], lives)
redis.call('PEXPIRE', KEYS[2], lives)
redis.call('HSET', KEYS[1], ticket, permits .. ':' .. token .. ':' .. base.int(ARGV[3] * 1000) .. ':' ..
  string.sub(ARGV[4], 1, 1) .. ':' .. since .. ':' .. ARGV[5])
redis.call('ZADD', KEYS[2], base.int(ends), ticket)
if KEYS[4] then
  local rests = base.int(since + string.match(ARGV[5], '^~(%d+)~') * 1000)
  local q = redis.call('HMGET', KEYS[1], 'rests', 'kept')
  local kept = base.int(math.max(tonumber(q[2] or 0), rests + SPARE_US))
  local ms = base.int((math.max(tonumber(kept), ends + SPARE_US, last + SPARE_US) - now) / 1000)
  redis.call('HSET', KEYS[1], 'rests', base.int(math.max(tonumber(q[1] or 0), tonumber(rests))), 'kept', kept)
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ms) end
  return { base.GRANTED, now, tonumber(token), ends }
end
if wanted then return { base.GRANTED, now, tonumber(token), ends, 0, 0, 0, WANTED } end
if KEYS[3] then
  local client, wants = string.match(ticket, '^[^:]*') .. ' ', h[5] and #h[5] < MOST and h[5] or ''
  if not string.find(wants, client, 1, true) then redis.call('HSET', KEYS[1], 'wants', wants .. client) end
end
return { base.GRANTED, now, tonumber(token), ends }
