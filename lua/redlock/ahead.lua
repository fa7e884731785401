-- redlock/ahead: how many wait at this node that have come before a call which holds its vote. It changes nothing.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  arrival   the arrival of the call
-- REPLY {status, now, token, until, place, waiting, arrival, flags}
--       status is DONE, place the number of those with an earlier arrival, waiting of those with the same
-- RETRY safe: it only reads

-- @include lib/base.lua
local before = redis.call('ZCOUNT', KEYS[2], '-inf', '(' .. ARGV[1])
local same = redis.call('ZCOUNT', KEYS[2], ARGV[1], ARGV[1])
return { base.DONE, base.now(), 0, 0, before, same, 0, 0 }
