-- multilock/end: the end of one ticket of each of several locks: out of the queue, freed if it holds, and the next
-- is served, as fairlock/end does for one.
--
-- The token of a hold of several locks is the highest of their tokens, so whoever holds one of them next has to get a
-- higher one. Their last tokens are raised to the highest of them, and to the minimum token of the client.
--
-- KEYS  for each lock, as fairlock/end has them:
--       lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       then for each lock: the ticket, and after a space how the hold ended, if it was not released, as in fairlock/end
-- REPLY for each lock {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states};
--       status is DONE if the ticket was the owner, REFUSED if not; then states holds the reason. Or DONE alone: for each
-- RETRY safe: a second call finds nothing of these tickets, and reports again what was granted to the calling
--       client and is not confirmed

-- The usual case comes ahead of the includes, as in fairlock/end. The numbers are those of lib/base.
local DONE = 5

-- All ours, and nobody waits for any: free them.
local plain, found, last = true, {}, 0
for i = 1, #KEYS / 3 do
  local h = redis.call('HMGET', KEYS[3 * i - 2], 'owner', 'token', 'high', 'marked')
  if h[1] ~= ARGV[2 + i] or h[3] and redis.call('ZCARD', KEYS[3 * i - 1]) > 0 then
    plain = false
    break
  end
  found[i] = h
  last = math.max(last, h[2] + 0)
end
if plain then
  local floor, now = ARGV[1] + 0, nil
  local function clock()
    local t = not now and redis.call('TIME')
    now = now or micros(t)
    return now
  end
  if floor > last then last = math.max(last, believed(floor, clock())) end
  for i, h in ipairs(found) do
    local lock, raised, cut = KEYS[3 * i - 2], h[2] + 0 < last, false
    if h[3] or h[4] then
      local k = redis.call('HMGET', lock, 'kept', 'until', 'phase')
      local lease, first = ticket_terms(h[1])
      lease = (k[3] == 'granted' and math.min(tonumber(lease), tonumber(first)) or tonumber(lease)) * 1000
      cut = lease > MOST_US - SPARE_US or (k[1] or 0) + 0 > ends_at(k[2], h[2], lease) - lease + MOST_US
      redis.call('HDEL', lock, 'owner', 'until', 'phase', 'high')
    else
      redis.call('HDEL', lock, 'owner', 'until', 'phase')
    end
    if raised then redis.call('HSET', lock, 'token', string.format('%.0f', last)) end
    if raised or cut then
      local ms = string.format('%.0f', (token_rest(last, clock()) + SPARE_US) / 1000)
      redis.call('HDEL', lock, 'kept')
      redis.call('PEXPIRE', lock, ms)
      if h[4] then redis.call('PEXPIRE', KEYS[3 * i], ms) end
    end
  end
  return DONE
end

-- @include lib/queue.lua
local now = base.now()
local locks, highest = {}, 0
for i = 1, #KEYS / 3 do
  local s = hold.read({ KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i] }, now, ARGV[1], ARGV[2])
  s.ticket, s.how = string.match(ARGV[2 + i], '^(%S+) ?(%a*)$')
  if s.how == '' then s.how = nil end
  s.caller = hold.client(s.ticket)
  s.size = redis.call('ZCARD', s.queue)
  if s.owner == s.ticket then highest = math.max(highest, s.token, s.floor) end
  locks[i] = s
end

local replies = {}
for i, s in ipairs(locks) do
  local status, states = base.DONE, nil
  if s.owner == s.ticket then
    hold.free(s, s.how)
    if s.size == 0 then
      hold.clear(s)
      hold.forget(s) -- Of a queue whose key was lost.
    end
    s.floor = math.max(s.floor, highest)
  else
    status = base.REFUSED
    s.size = s.size - redis.call('ZREM', s.queue, s.ticket)
    if hold.rests(s, s.ticket) then hold.free(s) end
    if s.size == 0 then hold.forget(s) end
  end
  local over = not s.owner or s.ends <= s.now or s.ends - s.now > s.lease
  if over and (s.owner or s.size > 0 or s.stale) then
    expiry.settle(s)
    queue.advance(s, s.caller)
  end
  if status == base.DONE and s.token < s.floor then
    s.token, s.created = s.floor, true -- The key has to outlive that token.
    redis.call('HSET', s.lock, 'token', base.int(s.token))
  end
  if over then hold.keep(s, s.size, true) end
  if status == base.REFUSED then
    -- @include lib/reason.lua
    states = { reason.of(s, s.ticket) }
    if s.owner and s.phase == 'granted' and hold.client(s.owner) == s.caller then
      hold.report(s)
    end
  end
  replies[i] = hold.reply(s, status, -1, 0, 0, states)
end
return replies
