-- fairlock/ask: take the lock if it is free and nobody waits, else keep a place in the queue.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  ticket    client:number:kind:tokens:lease:grant: how many tokens the client may make of that of a hold,
--                 which it says when the hold ends; the lease, and that of a grant, in ms
--       mode      try: leave no trace; look: no place yet, as the client cannot hear; wait: keep a place
--       notafter  server µs after which the ask changes nothing
--       arrival   what an earlier ask of this ticket answered, or 0
--       head      head start of the priority in µs
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       phase     held, or final if the lease will not be renewed
--       who       what operators are told of the client
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
-- RETRY safe: the same ticket gets the same grant, or keeps its place

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here. The numbers are those of lib/base, the names in capitals and the calls those of lib/rules.
local GRANTED, WAITING, LATE = 1, 2, 4
local ticket, mode, format = ARGV[1], ARGV[2], string.format
local t = redis.call('TIME')
local now = micros(t)
if now > tonumber(ARGV[3]) then return { LATE, now } end

local size = redis.call('ZCARD', KEYS[2])
local h = size == 0 and redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept')
  or redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'until', 'lease', 'high', 'marked', 'scan')
local kept = tonumber(h[3] or 0)

-- Free, and nobody waits: take it.
if not h[1] and size == 0 then
  local floor = tonumber(ARGV[6])
  local lease_ms = string.match(ticket, ':(%d+):%d+$')
  local token = next_token(tonumber(h[2] or 0), believed(floor, now), now)
  local ends, since = now + lease_ms * 1000, format('%.0f', now)
  redis.call('HSET', KEYS[1], 'owner', ticket, 'until', format('%.0f', ends), 'lease', lease_ms .. '000',
    'token', token == now and since or format('%.0f', token), 'phase', ARGV[8], 'who', ARGV[9], 'since', since)
  local need = token <= ends and ends or math.max(ends, token_need(token, now))
  if kept < need + LEAST_US then
    redis.call('HSET', KEYS[1], 'kept', format('%.0f', need + SPARE_US))
    redis.call('PEXPIRE', KEYS[1], format('%.0f', (need + SPARE_US - now) / 1000))
  end
  return { GRANTED, now, token, ends }
end

-- Held by another for some time yet, with nothing unusual about the queue: a first wait queues.
if h[1] and h[1] ~= ticket and mode == 'wait' and ARGV[4] == '0' and ARGV[5] == '0' then
  if size == 0 then h = redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'until', 'lease', 'high', 'marked', 'scan') end
  local ends = tonumber(h[4])
  if ends > now and ends - now <= tonumber(h[5]) and not h[7] and not h[8] then
    -- As hold.keep has it.
    local need = math.max(ends, token_need(tonumber(h[2]), now), queue_need(size + 1, now))
    local arrival = math.max(now, tonumber(h[6] or 0) + 1)
    local text = format('%.0f', arrival)
    local long = kept > need + MOST_US and kept > now + (string.match(h[1], ':(%d+):%d+$') or 0) * 1000 + MOST_US
    if size == 0 and not long then
      redis.call('ZADD', KEYS[2], text, ticket)
      kept = math.max(kept, need + SPARE_US)
      local ms = format('%.0f', (kept - now) / 1000)
      redis.call('HSET', KEYS[1], 'high', text, 'kept', format('%.0f', kept))
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('PEXPIRE', KEYS[2], ms)
      redis.call('PEXPIRE', KEYS[3], ms)
      return { WAITING, now, tonumber(h[2]), ends, 1, 1, arrival, 0 }
    end
    if not long and kept >= need + LEAST_US and redis.call('ZADD', KEYS[2], 'NX', text, ticket) == 1 then
      redis.call('HSET', KEYS[1], 'high', text)
      -- Not always the last: arrivals that clients bring along may be later.
      local ahead = redis.call('ZRANK', KEYS[2], ticket) + 1
      return { WAITING, now, tonumber(h[2]), ends, ahead, size + 1, arrival, 0 }
    end
  end
end

-- @include lib/place.lua
local s = hold.read(KEYS, now, ARGV[6], ARGV[7])
local over = not s.owner or s.ends <= now or s.ends - now > s.lease
if s.owner == ticket and not over then return hold.reply(s, base.GRANTED) end
local client = hold.client(ticket)
s.caller = client

if over then
  -- @include lib/queue.lua
  expiry.settle(s)
  if s.scan then place.recall(s, redis.call('ZSCORE', s.queue, ticket)) end
  queue.advance(s, client)
  size = redis.call('ZCARD', s.queue)
  if not s.owner and size == 0 then
    hold.own(s, ticket, tonumber(string.match(ticket, ':(%d+):%d+$')), ARGV[8], ARGV[9])
  end
  hold.keep(s, size)
  if s.owner == ticket then return hold.reply(s, base.GRANTED) end
end

if mode == 'try' then return hold.reply(s, base.BUSY, -1, size) end
local ahead, arrival
ahead, arrival, size = place.wait(s, ticket, mode, tonumber(ARGV[4]), tonumber(ARGV[5]), size)
hold.keep(s, size)
return hold.reply(s, base.WAITING, ahead, size, arrival)
