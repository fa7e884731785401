-- fairlock/inspect: who holds and who waits. It changes nothing.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  limit     how many tickets of the queue to tell
-- REPLY {now, token, owner, until, since, phase, who, waiting, {ticket, arrival, …}, {suspect, …}}
-- RETRY safe: it only reads

-- @include lib/base.lua
local h = redis.call('HMGET', KEYS[1], 'token', 'owner', 'until', 'since', 'phase', 'who')
return { base.now(), h[1] or '0', h[2] or '', h[3] or '0', h[4] or '0', h[5] or '', h[6] or '',
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[3], 0, ARGV[1] - 1) }
