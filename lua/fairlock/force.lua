-- fairlock/force: free the lock whoever holds it, tell the holder, and serve the queue. It is a request without a ticket
-- (lib/once).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  token     only if the hold has this token, or may have it by now as one that its client passes on; 0 for any
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the ticket of the former holder in states; or REFUSED, with the ticket of the present holder if
--       it is held by another token
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/queue.lua
local s = hold.read(KEYS, base.now(), ARGV[2], ARGV[3])
local size = redis.call('ZCARD', s.queue)
local wanted = tonumber(ARGV[1])
expiry.settle(s)
if not s.owner or (wanted ~= 0 and not hold.among(s, wanted)) then
  local other = s.owner
  queue.advance(s, '')
  hold.keep(s, size)
  return hold.reply(s, base.REFUSED, -1, size, 0, other and { other } or {})
end
local ticket = s.owner
hold.free(s, 'forced')
hold.clear(s) -- @logged note(s.lock, ticket, base.int(s.token), base.int(s.now), 'forced')
hold.spend(s, ticket)
hold.forced(s, ticket)
queue.advance(s, '')
hold.keep(s, size)
return hold.reply(s, base.DONE, -1, size, 0, { ticket })
