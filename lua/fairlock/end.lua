-- fairlock/end: the end of a ticket: out of the queue, freed if it holds, and the next is served.
--
-- Release, leaving the queue and giving back a grant are this one operation (R9).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  ticket    client:number:kind:permits:lease:grant
--       token     only if it holds with this token; 0 for any
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE if the ticket was the owner, REFUSED if not; then states holds the reason:
--       expired, forced or forgotten
-- RETRY safe: a second call finds nothing of this ticket, and reports again what was granted to the
--       calling client and is not confirmed

-- @include lib/base.lua
local ticket = ARGV[1]
local h = redis.call('HMGET', KEYS[1], 'owner', 'lease')
local owner = h[1]
local size = redis.call('ZCARD', KEYS[2])

-- Ours, and nobody waits: the usual case. HDEL is accepted when memory is full.
if owner == ticket and size == 0 and ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], 'owner')
  if tonumber(h[2]) > base.SPARE_US / 4 then
    -- Keys that were kept for a long lease need not be any longer.
    redis.call('HDEL', KEYS[1], 'kept')
    redis.call('PEXPIRE', KEYS[1], base.int(base.SPARE_US / 1000))
  end
  return { base.DONE }
end

-- @include lib/hold.lua
local s = hold.read(KEYS, base.now(), ARGV[3], ARGV[4])
local client = hold.client(ticket)
s.caller = client
local status, states = base.DONE, nil
if owner == ticket and (ARGV[2] == '0' or tonumber(ARGV[2]) == s.token) then
  hold.free(s)
else
  -- ZREM, too, is accepted when memory is full, and so is what a script writes after it.
  status = base.REFUSED
  size = size - redis.call('ZREM', s.queue, ticket)
  if size == 0 then hold.forget(s) end
end
if not s.owner or s.ends <= s.now or s.ends - s.now > s.lease then
  -- @include lib/queue.lua
  expiry.settle(s)
  queue.advance(s, client)
  hold.keep(s, size)
end
if status == base.REFUSED then
  -- @include lib/reason.lua
  states = { reason.of(s, ticket) }
  if s.owner and s.phase == 'granted' and hold.client(s.owner) == client then
    s.grants = { s.owner, s.token, s.ends }
  end
end
return hold.reply(s, status, -1, size, 0, states)
