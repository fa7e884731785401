-- multilock/ask: take all of several locks if all are free and nobody waits, else take what is free
-- and keep a place in the queues of the rest.
--
-- The places are taken in one script, so any two such calls stand in the same order in all the queues that they
-- have in common, and none of them waits for the other in one while the other waits for it in the next.
--
-- The tokens are above the last of all the locks: whoever guards something by one of them may have seen the highest.
--
-- KEYS  for each lock, as fairlock/ask has them:
--       lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  mode      try: leave no trace; look: no place yet, as the client cannot hear; wait: keep a place
--       notafter  server µs after which the ask changes nothing
--       head      head start of the priority in µs
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       phase     held, or final if the lease will not be renewed
--       then for each lock: the ticket, and what an earlier ask of it answered as its arrival, or 0
-- REPLY {LATE, now}, or for each lock {status, now, token, until, place, waiting, arrival, flags, skipped, expired,
--       grants, states}, or shorter:
--       now alone: GRANTED for each, for the lease of its ticket, with now as its token; as -now, if nothing is known of the hold
--       before of any; where it was not released, states of GRANTED has "!how:token"
-- RETRY safe: the same tickets get the same grants, or keep their places

-- The usual case comes ahead of the includes, as in fairlock/ask. The numbers are those of lib/base.
local GRANTED, LATE = 1, 4
local mode, format = ARGV[1], string.format
local t = redis.call('TIME')
local now = micros(t)
if now > tonumber(ARGV[2]) then return { LATE, now } end

-- All are free, and nobody waits for any: take them.
local plain, found = true, {}
for i = 1, #KEYS / 3 do
  local h = redis.call('HMGET', KEYS[3 * i - 2], 'owner', 'token', 'kept', 'version', 'high')
  if h[4] then error(other_version(h[4])) end
  if h[1] or (h[5] or not h[2]) and redis.call('ZCARD', KEYS[3 * i - 1]) > 0 then
    plain = false
    break
  end
  found[i] = h
end
if plain then
  local floor, replies, fresh = ARGV[4] + 0, {}, 0
  floor = believed(floor, now)
  for _, h in ipairs(found) do floor = math.max(floor, (h[2] or 0) + 0) end
  local token = next_token(0, floor, now)
  local fence = token == now and micros_text(t) or format('%.0f', token)
  for i, h in ipairs(found) do
    local lock, ticket = KEYS[3 * i - 2], ARGV[5 + 2 * i]
    local lease_ms = ticket_terms(ticket)
    local ends = now + lease_ms * 1000
    local need = token <= ends and ends or math.max(ends, token_need(token, now))
    if token == now and ARGV[6] == 'held' then
      redis.call('HSET', lock, 'owner', ticket, 'token', fence)
    else
      redis.call('HSET', lock, 'owner', ticket, 'until', format('%.0f', ends), 'token', fence, 'phase', ARGV[6])
    end
    if token ~= now then redis.call('HSET', lock, 'since', since_words(fence, format('%.0f', now))) end
    if not h[5] and ends - now > MOST_US - SPARE_US then redis.call('HSET', lock, 'high', '1') end
    local kept = (h[3] or 0) + 0
    local long = kept > need + MOST_US
    if long or kept < need + LEAST_US then
      local ms = format('%.0f', (need + SPARE_US - now) / 1000)
      redis.call('HSET', lock, 'kept', format('%.0f', need + SPARE_US))
      redis.call('PEXPIRE', lock, ms)
      if long then redis.call('PEXPIRE', KEYS[3 * i], ms) end
    end
    if h[2] then
      replies[i] = { GRANTED, now, token, ends }
    else
      fresh = fresh + 1
      replies[i] = { GRANTED, now, token, ends, 0, 0, 0, 0, 0, 0, {}, { '!unknown:0' } }
    end
  end
  if token == now and fresh == 0 then return now end
  return token == now and fresh == #replies and -now or replies
end

-- @include lib/place.lua

-- All types are looked at before the first write.
local locks, free, overdue, last = {}, true, false, 0
for i = 1, #KEYS / 3 do
  local s = hold.read({ KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i] }, now, ARGV[4], ARGV[5])
  s.ticket, s.arrival = ARGV[5 + 2 * i], tonumber(ARGV[6 + 2 * i])
  s.caller = hold.client(s.ticket)
  s.size = redis.call('ZCARD', s.queue)
  last = math.max(last, s.token)
  s.served = not s.owner or s.ends <= now or s.ends - now > s.lease
  overdue = overdue or s.served
  locks[i] = s
end
for _, s in ipairs(locks) do s.floor = math.max(s.floor, last) end
if overdue then
  -- @include lib/queue.lua
  for _, s in ipairs(locks) do
    if s.served then
      expiry.settle(s)
      if s.scan then place.recall(s, redis.call('ZSCORE', s.queue, s.ticket)) end
      queue.advance(s, s.caller)
      s.size = redis.call('ZCARD', s.queue)
    end
  end
end
for _, s in ipairs(locks) do
  if s.owner ~= s.ticket and (s.owner or s.size > 0) then free = false end
end

local replies = {}
for i, s in ipairs(locks) do
  local mine = s.owner == s.ticket
  -- Where one has to wait, what is free and nobody waits for is taken too: its place is the head of an empty queue.
  if not mine and not s.owner and s.size == 0 and (free or mode ~= 'try') then
    hold.own(s, s.ticket, tonumber(string.match(s.ticket, ':(%d+):%d+$')), ARGV[6])
    mine = true
  end
  if s.served then hold.keep(s, s.size) end
  if mine then
    replies[i] = hold.granted(s)
  elseif mode == 'try' then
    replies[i] = hold.reply(s, base.BUSY, -1, s.size, 0, { s.owner or nil })
  else
    local ahead, arrival
    ahead, arrival, s.size = place.wait(s, s.ticket, mode, s.arrival, tonumber(ARGV[3]), s.size)
    hold.keep(s, s.size)
    replies[i] = hold.reply(s, base.WAITING, ahead, s.size, arrival)
  end
end
return replies
