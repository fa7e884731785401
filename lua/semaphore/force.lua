-- semaphore/force: take the permits of one hold back, tell its client, and serve the queue. It is a request without a ticket
-- (lib/once).
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  ticket    whose hold it is
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the ticket in states, or REFUSED if it does not hold
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/permits.lua
local ticket = ARGV[1]
local s = permits.read(KEYS, base.now(), ARGV[2], ARGV[3])
local size = redis.call('ZCARD', s.queue)
permits.settle(s)
local holds, token, ends = permits.held(s, ticket)
if holds then
  permits.free(s, ticket, holds, ends)
  permits.finish(s, ticket, holds, token, 'forced')
  hold.forced(s, ticket)
end
queue.advance(s, '')
hold.keep(s, size)
return permits.reply(s, holds and base.DONE or base.REFUSED, -1, size, 0, holds and { ticket } or {})
