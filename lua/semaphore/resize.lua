-- semaphore/resize: change how many permits there are, while others hold and wait.
--
-- What is held stays held: until enough comes back, less than nothing is free. Tickets that ask for more than
-- there are now are told when they come to the head, or look. What clients state counts no more, until the
-- semaphore is forgotten.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  permits   the new limit
--       stated    the limit that the client goes by
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       notafter  server µs after which it changes nothing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, or MISMATCH if it was made with another limit than the client states, and never resized;
--       states holds the limit that was found
-- RETRY safe: a second call sets what is set

-- @include lib/permits.lua
local now = base.now()
if now > tonumber(ARGV[5]) then return { base.LATE, now } end

local s = permits.read(KEYS, now, ARGV[3], ARGV[4], ARGV[2])
local size, before = redis.call('ZCARD', s.queue), base.int(s.limit)
if not permits.agreed(s, ARGV[2]) then return permits.refuse(s, base.MISMATCH) end
permits.settle(s)
s.limit, s.stated = tonumber(ARGV[1]), false
redis.call('HSET', s.lock, 'limit', base.int(s.limit))
redis.call('HDEL', s.lock, 'stated')
queue.advance(s, '')
s.kept, s.created = math.max(s.kept, now + MONTH_US), true
hold.keep(s, size)
return permits.reply(s, base.DONE, -1, size, 0, { before })
