-- fairlock/end: the end of a ticket: out of the queue, freed if it holds, and the next is served.
--
-- Release, leaving the queue and giving back a grant are this one operation (R9).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  ticket    client:number:kind:tokens:lease:grant
--       token     only if it holds with this token, or has come to it by passing it on within its client: then that is
--                 the last one; 0 for any
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       note      words without a space that the message of a grant is to carry; may be missing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE if the ticket was the owner, REFUSED if not; then states holds the reason:
--       expired, forced or forgotten
-- RETRY safe: a second call finds nothing of this ticket, and reports again what was granted to the
--       calling client and is not confirmed

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here. The numbers are those of lib/base, the names in capitals and the calls those of lib/rules.
local DONE, HANDED = 5, 8
local ticket, format = ARGV[1], string.format
local size = redis.call('ZCARD', KEYS[2])
local h = size == 0 and redis.call('HMGET', KEYS[1], 'owner', 'lease', 'kept', 'until', 'token', 'marked')
  or redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'mark', 'scan', 'marked', 'until')
local plain = h[1] == ticket and ARGV[2] == '0'

-- Ours, and nobody waits: free it. HDEL is accepted when memory is full.
if plain and size == 0 then
  redis.call('HDEL', KEYS[1], 'owner')
  local lease = tonumber(h[2])
  if lease > MOST_US - SPARE_US or tonumber(h[3] or 0) > h[4] - lease + MOST_US then
    -- Keys that were kept for a long lease need not be any longer, but for a token that is ahead of the clock.
    local t = redis.call('TIME')
    local now = micros(t)
    local ms = format('%.0f', (token_rest(tonumber(h[5]), now) + SPARE_US) / 1000)
    redis.call('HDEL', KEYS[1], 'kept')
    redis.call('PEXPIRE', KEYS[1], ms)
    if h[6] then redis.call('PEXPIRE', KEYS[3], ms) end
  end
  return { DONE }
end

-- Ours, nothing unusual about the queue, and the head hears: hand on.
if plain and ARGV[4] == '1' then
  local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local client, lease, first = string.match(head[1], '^([^:]*):%d+:%a:%d+:(%d+):(%d+)$')
  local usual = client and not h[4] and not h[5] and not h[6]
  local mine = usual and client == string.match(ticket, '^[^:]*')
  local channel = usual and KEYS[1] .. ':wake:' .. client
  local counts = usual and not mine and redis.pcall('PUBSUB', 'NUMSUB', channel) -- R4, R5
  if mine or (counts and counts[2] and counts[2] > 0) then
    local t = redis.call('TIME')
    local now = micros(t)
    local lease_ms = math.min(tonumber(lease), tonumber(first))
    local ends = now + lease_ms * 1000
    local floor = tonumber(ARGV[3])
    local token = next_token(tonumber(h[2]), believed(floor, now), now)
    local need = math.max(ends, token_need(token, now), queue_need(size, now))
    local kept, most = tonumber(h[3] or 0), math.max(need, now + lease * 1000) + MOST_US -- As hold.keep has it.
    if kept >= need + LEAST_US and math.max(kept, h[7] + SPARE_US) <= most then
      local since, till = format('%.0f', now), format('%.0f', ends)
      local fence = token == now and since or format('%.0f', token)
      redis.call('ZREM', KEYS[2], head[1])
      redis.call('HSET', KEYS[1], 'owner', head[1], 'until', till, 'lease', lease_ms .. '000',
        'token', fence, 'phase', 'granted', 'who', '', 'since', since)
      if mine then
        return { DONE, now, token, ends, -1, size, 0, 0, 0, 0, { head[1], token, ends }, {} }
      end
      local sent = redis.pcall('PUBLISH', channel,
        'G ' .. grant_words(head[1], fence, since, till) .. grant_note(ARGV[5]))
      if type(sent) == 'number' then return { DONE, now, token, ends, -1, size, 0, HANDED } end
      -- Refused: back to where it was, for the long way to tell of it and to keep the queue's key.
      redis.call('ZADD', KEYS[2], head[2], head[1])
      redis.call('HSET', KEYS[1], 'owner', ticket, 'token', h[2], 'until', h[7])
    end
  end
end

-- @include lib/hold.lua
local s = hold.read(KEYS, base.now(), ARGV[3], ARGV[4])
local client = hold.client(ticket)
s.caller, s.note = client, ARGV[5]
local status, states = base.DONE, nil
local last = tonumber(ARGV[2])
if s.owner == ticket and (last == 0 or hold.among(s, last)) then
  hold.free(s)
  if last > s.token then
    hold.clear(s)
    s.token = last
    redis.call('HSET', s.lock, 'token', base.int(last))
  end
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
