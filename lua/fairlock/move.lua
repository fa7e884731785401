-- fairlock/move: a hold goes from one ticket to another, with a higher token: into transit, where it is nobody's, or out of
-- it (R11).
--
-- A ticket in transit is of kind t, and has the digest of a secret in place of a number.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  from      the ticket that holds
--       to        the ticket that is to hold, for the lease in its text
--       token     only if it holds with this token; 0 for any
--       secret    the secret of a ticket in transit; not looked at for any other ticket
--       phase     held, or final if the lease will not be renewed; final in transit: to let it run out is no one's fault
--       notafter  server µs after which nothing changes
--       floor     the highest token that the client has seen
--       counted   0 if subscribers cannot be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED, with rests in states if the name stays taken for some time when the hold has ended, and
--       "!handed:token" with the token of who gave it; or REFUSED with the reason in states: moved, expired, forced or
--       forgotten
-- RETRY safe: a second call finds that the hold has moved, and changes nothing

-- @include lib/queue.lua
-- @include lib/reason.lua
local now = base.now()
if now > tonumber(ARGV[6]) then return { base.LATE, now } end

local from, to = ARGV[1], ARGV[2]
local s = hold.read(KEYS, now, ARGV[7], ARGV[8])
local size = redis.call('ZCARD', s.queue)
s.caller = hold.client(to)
if not s.owner or s.ends <= now or s.ends - now > s.lease then
  expiry.settle(s)
  queue.advance(s, s.caller)
  size = redis.call('ZCARD', s.queue)
end
local digest = string.match(from, '^[^:]*:([^:]*):t:')
local genuine = not digest or digest == redis.sha1hex(ARGV[4])
-- Not what has just been granted: who knows of it holds it.
if s.owner == from and not s.grants and genuine and (ARGV[3] == '0' or s.token == tonumber(ARGV[3])) then
  -- Accepted when memory is full, and so is what follows.
  hold.open(s) -- @logged if not digest then note(s.lock, from, base.int(s.token), base.int(s.now), 'moved') end
  -- In transit it knows whose it was.
  s.before, s.remains = digest and s.told or 'handed:' .. base.int(s.token), 0
  local keeps = s.keeps
  hold.own(s, to, tonumber(string.match(to, ':(%d+):%d+$')), ARGV[5])
  redis.call('HSET', s.lock, 'moved', from)
  s.rests, s.keeps = s.rests > now and s.rests or 0, keeps
  hold.staying(s)
end
hold.keep(s, size)
if s.owner == to then
  if string.find(to, ':t:', 1, true) then hold.look(s) end -- Who gave it may be gone when the transit ends.
  local states = { s.rests > now and 'rests' or nil }
  if s.told then states[#states + 1] = '!' .. s.told end
  return hold.reply(s, base.GRANTED, 0, 0, 0, states)
end
local why = 'forgotten' -- Nor is anybody told more who does not know the secret.
if genuine then why = redis.call('HGET', s.lock, 'moved') == from and 'moved' or reason.of(s, from) end
return hold.reply(s, base.REFUSED, -1, 0, 0, { why })
