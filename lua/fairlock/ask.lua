-- fairlock/ask: take the lock if it is free and nobody waits, else keep a place in the queue.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark. Without it only what is usual is done, and
--                 else the answer is UNUSUAL
-- ARGV  ticket    client:number:kind:tokens:lease:grant: how many tokens the client may make from the token of a hold,
--                 which it says when the hold ends; the leases of the hold and of a grant, in ms
--       mode      try: leave no trace; look: no place yet, as the client cannot hear; wait: keep a place. After look and
--                 wait: how many may wait, for a ticket with a limit that never had a place, as in "wait 16"
--       notafter  server µs after which the ask changes nothing
--       floor     the highest token that the client has seen; missing or empty: none that is later than when this was sent.
--                 Where it is missing the lock is expected to be free
--       arrival   what an earlier ask of this ticket answered, or 0; missing: 0
--       head      head start of the priority in µs; missing: 0
--       counted   0 if subscribers cannot be counted; missing: they can
--       phase     held, or final if the lease will not be renewed; missing: held
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}, or shorter:
--       now alone: GRANTED for the lease of the ticket, with now as its token; as -now, if nothing is known of the hold before
--       "now token until waiting" in one text: WAITING as the last in the queue, so waiting is its place, with now as its
--       arrival
--       {status, now, now - token, until - now, place, waiting}: WAITING with now as its arrival
--       {status, now, now - token, until - now, place, waiting, owner}: BUSY; in full the owner is the first of states
--       "now token until waiting waited" in one text: FULL, the queue has no room; waited is how long its head had waited,
--       in µs, when its tickets were last looked at. The ticket is not kept
--       UNUSUAL alone: nothing was done, ask with all keys
--       where the hold before was not released, states of GRANTED has "!how:token": how it ended
-- RETRY safe: the same ticket gets the same grant, or keeps its place

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here; and a number alone costs Redis less than an array. The numbers are those of lib/base, the names in
-- capitals and the calls those of lib/rules.
local GRANTED, WAITING, BUSY, LATE, UNUSUAL = 1, 2, 3, 4, 12
local ticket, mode, format = ARGV[1], ARGV[2], string.format
local limit
if #mode > 4 then mode, limit = bounded(mode) end
local t = redis.call('TIME')
local now = micros(t)
local notafter = ARGV[3] + 0
if now > notafter then return { LATE, now } end

-- Without high nobody has queued since the last release. Where the hash is lost the queue may have outlived it.
local h = ARGV[4] and redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'version', 'high', 'until', 'phase', 'marked', 'scan')
  or redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'version', 'high')
if h[4] then error(other_version(h[4])) end
local size = h[2] and not h[5] and 0 or redis.call('ZCARD', KEYS[2])
local kept = (h[3] or 0) + 0

-- Free, and nobody waits: take it.
if not h[1] and size == 0 then
  local floor = tonumber(ARGV[4]) or sent_by(notafter, now)
  local lease_ms = ticket_terms(ticket)
  local token = next_token((h[2] or 0) + 0, believed(floor, now), now)
  local ends, fence = now + lease_ms * 1000, token == now and micros_text(t) or format('%.0f', token)
  local need = token <= ends and ends or math.max(ends, token_need(token, now))
  local long = kept > need + MOST_US
  if long and not KEYS[3] then return UNUSUAL end
  if token == now and (ARGV[8] or 'held') == 'held' then
    redis.call('HSET', KEYS[1], 'owner', ticket, 'token', fence)
  else
    redis.call('HSET', KEYS[1], 'owner', ticket, 'until', format('%.0f', ends), 'token', fence, 'phase', ARGV[8] or 'held')
  end
  if token ~= now then redis.call('HSET', KEYS[1], 'since', since_words(fence, format('%.0f', now))) end
  if not h[5] and ends - now > MOST_US - SPARE_US then redis.call('HSET', KEYS[1], 'high', '1') end
  if long or kept < need + LEAST_US then
    local ms = format('%.0f', (need + SPARE_US - now) / 1000)
    redis.call('HSET', KEYS[1], 'kept', format('%.0f', need + SPARE_US))
    redis.call('PEXPIRE', KEYS[1], ms)
    if long then redis.call('PEXPIRE', KEYS[3], ms) end
  end
  if token == now then return h[2] and now or -now end
  if h[2] then return { GRANTED, now, token, ends } end
  return { GRANTED, now, token, ends, 0, 0, 0, 0, 0, 0, {}, { '!unknown:0' } }
end

-- Held by another for some time yet, with nothing unusual about the queue: a first ask queues, or looks.
if h[1] and h[1] ~= ticket and (ARGV[5] or '0') == '0' and (ARGV[6] or '0') == '0' then
  if not ARGV[4] then
    h = redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'version', 'high', 'until', 'phase', 'marked', 'scan')
  end
  local token = h[2] + 0
  local lasts, first = ticket_terms(h[1])
  lasts = lasts and lasts * 1000 or 0
  local ends = ends_at(h[6], token, lasts)
  if ends > now and ends - now <= (h[7] == 'granted' and math.min(lasts, first * 1000) or lasts) and not h[8] and not h[9] then
    if mode == 'try' then return { BUSY, now, now - token, ends - now, -1, size, h[1] } end
    local full
    if limit and size > 0 then
      -- @include lib/known.lua
      full = known.full(KEYS, redis.call('HGET', KEYS[1], 'looked'), now, ticket, size, tonumber(limit))
      if full then return micros_text(t) .. ' ' .. h[2] .. ' ' .. (h[6] or format('%.0f', ends)) .. ' ' .. size .. ' ' .. full end
    end
    -- As hold.keep has it.
    local waits = mode == 'wait'
    local need = math.max(ends, token_need(token, now), queue_need(waits and size + 1 or size, now))
    local arrival = math.max(now, (h[5] or 0) + 1)
    local text, ahead = arrival == now and micros_text(t) or format('%.0f', arrival), -1
    local long = full == false or waits and wants_word(h[7]) -- Somebody is to be told.
      or kept > need + MOST_US and kept > now + lasts + MOST_US
    if size == 0 and not long and waits then
      redis.call('ZADD', KEYS[2], text, ticket)
      kept = math.max(kept, need + SPARE_US)
      local ms = format('%.0f', (kept - now) / 1000)
      redis.call('HSET', KEYS[1], 'high', text, 'kept', format('%.0f', kept))
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('PEXPIRE', KEYS[2], ms)
      ahead, size = 1, 1
    elseif not long and kept >= need + LEAST_US then
      if not waits then
        -- One that is queued keeps the arrival that it has.
        ahead = mode == 'look' and not redis.call('ZSCORE', KEYS[2], ticket) and ahead or nil
      elseif size > 0 and redis.call('ZADD', KEYS[2], 'NX', text, ticket) == 1 then
        -- Not always the last: arrivals that clients bring along, or of a low priority, may be later.
        ahead, size = redis.call('ZRANK', KEYS[2], ticket) + 1, size + 1
      else
        ahead = nil
      end
      if ahead then redis.call('HSET', KEYS[1], 'high', text) end
    else
      ahead = nil
    end
    -- As nearly always. A list of six numbers would cost Redis twice as much as what is at hand as text.
    if ahead == size and arrival == now then return text .. ' ' .. h[2] .. ' ' .. (h[6] or format('%.0f', ends)) .. ' ' .. size end
    if ahead and arrival == now then return { WAITING, now, now - token, ends - now, ahead, size } end
    if ahead then return { WAITING, now, token, ends, ahead, size, arrival, 0 } end
  end
end
if not KEYS[3] then return UNUSUAL end

-- @include lib/place.lua
size = redis.call('ZCARD', KEYS[2]) -- Of another type it ends the script here.
local s = hold.read(KEYS, now, tonumber(ARGV[4]) or sent_by(notafter, now), ARGV[7])
local over = not s.owner or s.ends <= now or s.ends - now > s.lease
if s.owner == ticket and not over then return hold.granted(s) end
local client = hold.client(ticket)
s.caller = client

if over or limit then
  -- @include lib/queue.lua
  if over then
    expiry.settle(s)
    if s.scan then place.recall(s, redis.call('ZSCORE', s.queue, ticket)) end
    queue.advance(s, client)
    size = redis.call('ZCARD', s.queue)
    if not s.owner and size == 0 then
      hold.own(s, ticket, tonumber(string.match(ticket, ':(%d+):%d+$')), ARGV[8] or 'held')
    end
    hold.keep(s, size)
    if s.owner == ticket then return hold.granted(s) end
  end
  if limit and not redis.call('ZSCORE', s.queue, ticket) then
    -- @include lib/room.lua
    local oldest = room.full(s, limit)
    size = redis.call('ZCARD', s.queue)
    if oldest then
      hold.keep(s, size)
      return hold.reply(s, base.FULL, -1, size, oldest)
    end
  end
end

if mode == 'try' then return hold.reply(s, base.BUSY, -1, size, 0, { s.owner or nil }) end
local ahead, arrival
ahead, arrival, size = place.wait(s, ticket, mode, tonumber(ARGV[5] or 0), tonumber(ARGV[6] or 0), size)
hold.keep(s, size)
return hold.reply(s, base.WAITING, ahead, size, arrival)
