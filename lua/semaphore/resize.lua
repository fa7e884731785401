-- semaphore/resize: change how many permits there are, while others hold and wait. It is a request without a ticket
-- (lib/once).
--
-- What is held stays held: until enough comes back, less than nothing is free. Tickets that ask for more than
-- there are now are told when they come to the head, or look. The number counts until a client that is newer than all before
-- states another than they did, or the semaphore is forgotten.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  permits   the new limit
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the limit that was found in states, 0 if there was no lock; or MISMATCH, if that limit cannot change
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/permits.lua
local now = base.now()
local s = permits.read(KEYS, now, ARGV[2], ARGV[3], ARGV[1])
local size, before = redis.call('ZCARD', s.queue), s.new and '0' or base.int(s.limit)
if s.new then
  s.stated = nil
elseif s.stated and not s.born then
  return permits.refuse(s, base.MISMATCH)
end
s.limit = tonumber(ARGV[1])
s.restated = true
permits.settle(s)
queue.advance(s, '')
s.created = true
if s.stated ~= s.limit then s.kept = math.max(s.kept, now + MONTH_US) end
hold.keep(s, size)
return permits.reply(s, base.DONE, -1, size, 0, { before })
