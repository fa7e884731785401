-- semaphore/bury: end what a dead client holds and waits for at one name. Its requests that are still under way are refused, its
-- tickets are passed over, its permits are free, and the queue is served.
--
-- Permits that are to stay taken for some time after the hold do so.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
--       grave     hash  that the client is dead
-- ARGV  client    who is dead
--       lasts     ms for which its requests are refused
--       floor     the highest token that the caller has seen
--       counted   1 if subscribers can be counted
--       from      the end of a lease, server µs: holds that end before it were looked at by an earlier call; 0 at first
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the tickets in states, if the client held; else REFUSED. The arrival is from of the next call
--       that has to follow, 0 if none has to
-- RETRY safe: a second call finds nothing of the client

-- @include lib/permits.lua
-- @include lib/grave.lua
local WINDOW = 512 -- holds that are looked at in one script; fewer can have one end, as 256 are granted in one
local client = ARGV[1]
local s = permits.read(KEYS, base.now(), ARGV[3], ARGV[4])
permits.open(s)
grave.mark(KEYS[5], ARGV[2])
permits.settle(s)
local all = redis.call('ZRANGE', s.holders, ARGV[5], '+inf', 'BYSCORE', 'LIMIT', 0, WINDOW, 'WITHSCORES')
local ended, rests = {}, false
for i = 1, #all, 2 do
  if grave.has(client, all[i]) then
    local record = redis.call('HGET', s.lock, all[i])
    local n, token = permits.parse(record or '0:0:0:f:0:')
    rests = permits.free(s, all[i], n, tonumber(all[i + 1]), record) or rests
    permits.finish(s, all[i], n, token, 'died')
    ended[#ended + 1] = all[i]
  end
end
if #ended > 0 then
  redis.call('HSET', s.lock, 'died', client)
  hold.taken(s, ended[1])
end
if redis.call('ZCARD', s.queue) > 0 then expiry.mark(s, client) end
queue.advance(s, '')
local size = redis.call('ZCARD', s.queue)
hold.keep(s, size)
if rests then hold.look(s) end
local more = #all == 2 * WINDOW and tonumber(all[#all]) or 0
return permits.reply(s, #ended > 0 and base.DONE or base.REFUSED, -1, size, more, ended)
