-- fairlock/bury: end what a dead client holds and waits for at one name. Its requests that are still under way are refused, its
-- tickets are passed over, what it holds is free, and the queue is served.
--
-- A name that is to stay taken for some time after the hold does so.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       grave     hash  that the client is dead
-- ARGV  client    who is dead
--       lasts     ms for which its requests are refused
--       floor     the highest token that the caller has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the ticket in states, if the client held; else REFUSED
-- RETRY safe: a second call finds nothing of the client

-- @include lib/queue.lua
-- @include lib/grave.lua
local client = ARGV[1]
local s = hold.read(KEYS, base.now(), ARGV[3], ARGV[4])
local size = redis.call('ZCARD', s.queue)
hold.open(s)
grave.mark(KEYS[4], ARGV[2])
expiry.settle(s)
local ticket = s.owner and grave.has(client, s.owner) and s.owner
local rests = ticket and hold.rest(s, 'died')
if ticket then
  if not rests then hold.free(s, 'died') end
  hold.clear(s) -- @logged note(s.lock, ticket, base.int(s.token), base.int(s.now), 'died')
  hold.spend(s, ticket)
  redis.call('HSET', s.lock, 'died', client)
  hold.taken(s, ticket)
end
if size > 0 then expiry.mark(s, client) end
queue.advance(s, '')
hold.keep(s, redis.call('ZCARD', s.queue))
if rests then hold.look(s) end
return hold.reply(s, ticket and base.DONE or base.REFUSED, -1, redis.call('ZCARD', s.queue), 0, ticket and { ticket } or {})
