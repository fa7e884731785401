-- semaphore/ask: take permits if enough are free and nobody waits, else keep a place in the queue.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  ticket    client:number:kind:permits:lease:grant; the leases of the hold and of a grant, in ms
--       mode      try: leave no trace; look: no place yet, as the client cannot hear; wait: keep a place; drain:
--                 a try for all permits that are free, of a ticket that names none. After look and wait: how many may
--                 wait, for a ticket with a limit that never had a place, as in "wait 16"
--       notafter  server µs after which the ask changes nothing
--       arrival   what an earlier ask of this ticket answered, or 0
--       head      head start of the priority in µs
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       phase     held, or final if the lease will not be renewed
--       who       what operators are told of the client
--       limit     how many permits there are, as the client states it
--       born      server µs at which the client was made; absent if the limit cannot change. The limit of the newest client
--                 counts; where that is another than the newest before it stated, DIFFERS is among the flags. Without it
--                 the limit must be the one that counts
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       place of GRANTED is the number of permits, where it is told. EXCESS: the ticket asks for more than there
--       are. MISMATCH: another limit counts, and cannot change. Both are told at once, with the limit in states, and keep
--       nothing of the ticket. The flag DIFFERS: the client states another limit than the newest, or than the newest before it.
--       FULL: there is no room in the queue, whose head has that arrival, or had waited since then when its tickets were last
--       looked at; nothing is kept of the ticket
-- RETRY safe: the same ticket gets the same grant, or keeps its place

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here. The numbers are those of lib/base, the names in capitals and the calls those of lib/rules.
local GRANTED, WAITING, LATE, FULL, DIFFERS = 1, 2, 4, 13, 128
local ticket, mode, format = ARGV[1], ARGV[2], string.format
local limit
if #mode > 5 then mode, limit = bounded(mode) end
local t = redis.call('TIME')
local now = micros(t)
if now > ARGV[3] + 0 then return { LATE, now } end

local kind, number, lease_ms = string.match(ticket, '^[^:]*:%d+:(%a):(%d+):(%d+):')
local h = redis.call('HMGET', KEYS[1], ticket, 'limit', 'stated', 'used', 'token', 'kept', 'group', 'born')
local size, n = redis.call('ZCARD', KEYS[2]), tonumber(number)
local kept, room = (h[6] or 0) + 0, (h[2] or 0) - (h[4] or 0)
local agreed, other = h[2] and h[3] and not h[1] and n > 0, nil
if agreed and ARGV[10] ~= h[3] then other = 0 end
if agreed and ARGV[11] then
  local born = (h[8] or 0) + 0
  agreed = ARGV[11] + 0 <= born and born <= now -- The client is not newer than the one whose number counts.
elseif other then
  agreed = false
end
if agreed and h[3] ~= h[2] then agreed = kept >= now + MONTH_US - DAY_US end -- It was resized.
local lost = false

-- Enough is free, and nobody waits: take it. The guard of the holders comes along, to see that it was there.
if agreed and size == 0 and n <= room then
  local ends, token, floor = now + lease_ms * 1000, (h[5] or 0) + 0, ARGV[6] + 0
  floor = believed(floor, now)
  local usual = kept >= math.max(ends, queue_need(0, now), token_need(math.max(token, floor), now)) + LEAST_US
  lost = usual and redis.call('ZADD', KEYS[4], 0, '-', format('%.0f', ends), ticket) ~= 1
  if usual and not lost then
    local since, fence = micros_text(t), h[5]
    local record = ':' .. lease_ms .. '000:' .. string.sub(ARGV[8], 1, 1) .. ':' .. since .. ':' .. ARGV[9]
    local used = format('%.0f', h[4] + n)
    if kind == 'r' and h[4] ~= '0' and h[7] == fence and floor <= token then
      -- Readers that hold together share a token.
      redis.call('HSET', KEYS[1], 'used', used, ticket, number .. ':' .. fence .. record)
      return { GRANTED, now, token, ends, other, other, other, other and DIFFERS }
    end
    token = next_token(token, floor, now)
    fence = token == now and since or format('%.0f', token)
    if kind == 'r' then
      redis.call('HSET', KEYS[1], 'used', used, 'token', fence, 'group', fence, ticket, number .. ':' .. fence .. record)
    else
      redis.call('HSET', KEYS[1], 'used', used, 'token', fence, ticket, number .. ':' .. fence .. record)
    end
    return { GRANTED, now, token, ends, other, other, other, other and DIFFERS }
  end
end

-- No lease has run out, nothing is unusual about the queue, and its head does not fit and hears: a first wait
-- queues.
if agreed and (mode == 'wait' or limit and mode == 'look') and ARGV[4] == '0' and ARGV[5] == '0' and size > 0
  and n <= tonumber(h[2]) and kept >= LEAST_US
    + math.max(queue_need(size + 1, now), token_need((h[5] or 0) + 0, now)) then
  local client = string.match(ticket, '^[^:]*')
  local q = redis.call('HMGET', KEYS[1], 'high', 'marked', 'scan', 'mark')
  local first = redis.call('ZRANGE', KEYS[4], 0, 1, 'WITHSCORES')
  local ends = (first[4] or 0) + 0
  local arrival = math.max(now, (q[1] or 0) + 1)
  local stuck = first[1] == '-' and ends > now and not q[2] and not q[3] and not q[4]
  if stuck and room > 0 then
    local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local other, needs = string.match(head[1], '^([^:]*):%d+:%a:(%d+):%d+:%d+$')
    stuck = other and tonumber(head[2]) < arrival and tonumber(needs) > room and tonumber(needs) <= tonumber(h[2])
    if stuck and other ~= client then
      local counts = ARGV[7] == '1' and redis.pcall('PUBSUB', 'NUMSUB', KEYS[1] .. ':wake:' .. other) -- R4
      stuck = counts and (counts[2] or 0) > 0
    end
  end
  if stuck and limit then
    -- @include lib/known.lua
    local full = known.full(KEYS, redis.call('HGET', KEYS[1], 'looked'), now, ticket, size, tonumber(limit))
    if full then return { FULL, now, tonumber(h[5] or 0), ends, -1, size, now - full, other and DIFFERS or 0 } end
    stuck = full == nil and mode == 'wait'
  end
  if stuck then
    local text = arrival == now and micros_text(t) or format('%.0f', arrival)
    if redis.call('ZADD', KEYS[2], 'NX', text, ticket) == 1 then
      redis.call('HSET', KEYS[1], 'high', text)
      local ahead = redis.call('ZRANK', KEYS[2], ticket) + 1
      return { WAITING, now, tonumber(h[5] or 0), ends, ahead, size + 1, arrival, other and DIFFERS or 0 }
    end
  end
end

-- @include lib/permits.lua
-- @include lib/place.lua
local s = permits.read(KEYS, now, ARGV[6], ARGV[7], ARGV[10], ARGV[11])
if not s.new then
  local ok, differs = permits.state(s, ARGV[10], ARGV[11])
  if not ok then return permits.refuse(s, base.MISMATCH) end
  if differs then hold.flag(s, hold.DIFFERS) end
end
if s.new and n > s.limit then
  redis.call('ZREM', s.queue, ticket)
  return permits.refuse(s, base.EXCESS)
end
local client = hold.client(ticket)
s.caller = client
s.lost = s.lost or lost
permits.settle(s)
if s.stated ~= s.limit and kept < now + MONTH_US - DAY_US then
  s.kept, s.created = now + MONTH_US, true -- It was resized, and is in use.
end
local holds, token, ends = permits.held(s, ticket)
if s.scan then place.recall(s, redis.call('ZSCORE', s.queue, ticket)) end
if not holds and n > s.limit then redis.call('ZREM', s.queue, ticket) end
queue.advance(s, client)
size = redis.call('ZCARD', s.queue)
if mode == 'drain' then n = math.max(s.limit - s.used, 0) end
if not holds and not s.taken[ticket] and size == 0 and n > 0 and n <= s.limit - s.used then
  permits.take(s, { {
    ticket = ticket, kind = kind, permits = n, lease_ms = tonumber(lease_ms), phase = string.sub(ARGV[8], 1, 1),
  } }, ARGV[9])
end
local taken = s.taken[ticket]
if taken then holds, token, ends = taken.permits, taken.token, taken.ends end
hold.keep(s, size)
if holds then return permits.granted(s, mode == 'drain' and holds or 0, token, ends) end
if n > s.limit then return permits.refuse(s, base.EXCESS) end
if mode == 'try' or mode == 'drain' then return permits.reply(s, base.BUSY, -1, size, 0) end
if limit and not redis.call('ZSCORE', s.queue, ticket) then
  -- @include lib/room.lua
  local oldest = room.full(s, limit)
  size = redis.call('ZCARD', s.queue)
  if oldest then
    hold.keep(s, size)
    return permits.reply(s, base.FULL, -1, size, oldest)
  end
end

local ahead, arrival
ahead, arrival, size = place.wait(s, ticket, mode, tonumber(ARGV[4]), tonumber(ARGV[5]), size)
if ahead == (s.owner and 1 or 0) then queue.advance(s, client) end -- It came in ahead of one that does not fit.
hold.keep(s, size)
taken = s.taken[ticket]
if taken then return permits.granted(s, 0, taken.token, taken.ends) end
return permits.reply(s, base.WAITING, ahead, size, arrival)
