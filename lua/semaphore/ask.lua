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
--       who       what operators are told of the client
--       limit     how many permits there are, as the client states it
--       born      server µs at which the client was made; missing or empty if the limit cannot change. The limit of the
--                 newest client counts; where that is another than the newest before it stated, DIFFERS is among the flags.
--                 Without it the limit must be the one that counts
--       floor     the highest token that the client has seen; missing or empty: none that is later than when this was sent
--       arrival   what an earlier ask of this ticket answered, or 0; missing: 0
--       head      head start of the priority in µs; missing: 0
--       counted   0 if subscribers cannot be counted; missing: they can
--       phase     held, or final if the lease will not be renewed; missing: held
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}, or shorter:
--       now alone: GRANTED for the lease of the ticket, with now as its token; as -now, if it writes and nothing is known of the
--       write hold before. Where that was not released, states of GRANTED has "!how:token": how it ended
--       "now token" in one text: the same with another token, as of readers that share one
--       {status, now, now - token, until - now, place, waiting}: BUSY
--       place of GRANTED is the number of permits, where it is told. EXCESS: the ticket asks for more than there
--       are. MISMATCH: another limit counts, and cannot change. Both are told at once, with the limit in states, and keep
--       nothing of the ticket. The flag DIFFERS: the client states another limit than the newest, or than the newest before it.
--       FULL: there is no room in the queue, whose head has that arrival, or had waited since then when its tickets were last
--       looked at; nothing is kept of the ticket
-- RETRY safe: the same ticket gets the same grant, or keeps its place

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here. A number that goes to Redis as such costs half of a formatted one. The numbers are those of lib/base, the
-- names in capitals and the calls those of lib/rules.
local GRANTED, WAITING, BUSY, LATE, FULL, DIFFERS = 1, 2, 3, 4, 13, 128
local ticket, mode, format = ARGV[1], ARGV[2], string.format
local limit
if #mode > 5 then mode, limit = bounded(mode) end
local t = redis.call('TIME')
local now = micros(t)
local notafter = ARGV[3] + 0
if now > notafter then return { LATE, now } end

-- Without high nobody has queued since the last release. Where the hash is lost the queue may have outlived it.
local kind, number, lease_ms = string.match(ticket, '^[^:]*:%d+:(%a):(%d+):(%d+):')
local holders, n, born = KEYS[4], tonumber(number), ARGV[6] ~= '' and ARGV[6] or nil
-- A field that is not there costs the most: Redis goes through all holds for it.
local h = redis.call('HMGET', KEYS[1], 'limit', 'stated', 'used', 'token', 'kept', 'high', kind == 'r' and 'group' or kind == 'w' and 'previous' or born and 'born' or 'used')
if of_another(h[1]) then error(other_version(number_of(h[1]))) end
local most = h[1] -- nil: there is no lock
local size = most and not h[6] and 0 or redis.call('ZCARD', KEYS[2])
local last, kept, room = (h[4] or 0) + 0, (h[5] or 0) + 0, (most or ARGV[5]) - (h[3] or 0)
local agreed, newer, other = n > 0, false, nil
if not most then
  agreed = agreed and not h[4] and not h[6] and size == 0 and redis.call('ZCARD', holders) == 0
else
  agreed = agreed and h[2]
  if agreed and ARGV[5] ~= h[2] then other = 0 end
  if agreed and born then
    -- The newest client states what counts.
    local made, mine = (h[7] or 0) + 0, born + 0
    newer = mine > made
    if made > now or newer and (other or h[2] ~= most or mine > now) then agreed = false end
  elseif other then
    agreed = false
  end
  if agreed and h[2] ~= most then agreed = kept >= now + MONTH_US - DAY_US end -- It was resized.
end
local lost = false
-- Only what comes below knows how the last writer's hold ended.
if kind == 'w' and h[7] and string.sub(h[7], 1, 2) == '0:' then agreed = false end

-- Enough is free, and nobody waits: take it. The guard of the holders comes along, to see that it was there; and who holds
-- already is not added.
if agreed and size == 0 and n <= room then
  local ends, floor = now + lease_ms * 1000, tonumber(ARGV[7]) or sent_by(notafter, now)
  floor = believed(floor, now)
  -- Readers that hold together share a token.
  local shares = kind == 'r' and h[3] and h[3] ~= '0' and h[7] == h[4] and last >= floor
  local token = shares and last or next_token(last, floor, now)
  local need = math.max(ends, queue_need(0, now), token_need(token, now))
  local short = kept < need + LEAST_US
  local q = short and most and redis.call('HMGET', KEYS[1], 'marked', 'rests')
  local added = redis.call('ZADD', holders, 'NX', 0, GUARD, ends, ticket)
  lost, agreed = most and added == 2, added == (most and 1 or 2)
  if agreed then
    local since = micros_text(t)
    local fence = shares and h[4] or token == now and since or format('%.0f', token)
    local used = (h[3] or 0) + n
    local own = number .. ':' .. fence .. ':' .. lease_ms .. '000:' .. string.sub(ARGV[11] or 'held', 1, 1) .. ':' .. since .. ':' .. ARGV[4]
    if shares then
      redis.call('HSET', KEYS[1], 'used', used, ticket, own)
    elseif kind == 'r' then
      redis.call('HSET', KEYS[1], 'used', used, 'token', fence, 'group', fence, ticket, own)
    else
      redis.call('HSET', KEYS[1], 'used', used, 'token', fence, ticket, own)
    end
    if newer then redis.call('HSET', KEYS[1], 'born', born) end
    if not most then
      redis.call('HSET', KEYS[1], 'limit', ARGV[5], 'stated', ARGV[5])
      if born then redis.call('HSET', KEYS[1], 'born', born) end
    end
    if kind == 'r' and not h[4] then redis.call('HSET', KEYS[1], 'previous', '0:unknown:0', 'marked', '1') end
    if short then
      local longest = most and redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2] or 0 -- Others may hold for longer.
      kept = math.max(kept, SPARE_US + math.max(need, longest, (q and q[2] or 0) + 0))
      local ms = format('%.0f', (kept - now) / 1000)
      redis.call('HSET', KEYS[1], 'kept', format('%.0f', kept))
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('PEXPIRE', holders, ms)
      if q and q[1] then redis.call('PEXPIRE', KEYS[3], ms) end
    end
    if kind == 'w' and not h[4] then
      if token == now and not other then return -now end
      return { GRANTED, now, token, ends, 0, 0, 0, other and DIFFERS or 0, 0, 0, {}, { '!unknown:0' } }
    end
    if not other then return token == now and now or since .. ' ' .. fence end
    return { GRANTED, now, token, ends, other, other, other, other and DIFFERS }
  end
end

-- No lease has run out, nothing is unusual about the queue, and its head does not fit and hears: a try is refused, and a first
-- wait or look gets its arrival.
if agreed and most and not newer and n <= most + 0 and (ARGV[8] or '0') == '0' and (ARGV[9] or '0') == '0'
  and kept >= LEAST_US + math.max(queue_need(size + 1, now), token_need(last, now)) then
  local q = redis.call('HMGET', KEYS[1], 'marked', 'scan', 'mark', ticket, 'wants', 'rests')
  local first = redis.call('ZRANGE', holders, 0, 1, 'WITHSCORES')
  local ends = (first[4] or 0) + 0
  local arrival = math.max(now, (h[6] or 0) + 1)
  local stuck = first[1] == GUARD and ends > now and not q[1] and not q[2] and not q[3] and not q[4] and not (size == 0 and q[5])
  if stuck and size > 0 and room > 0 then
    local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    local client, needs = string.match(head[1], '^([^:]*):%d+:%a:(%d+):%d+:%d+$')
    stuck = client and tonumber(head[2]) < arrival and tonumber(needs) > room and tonumber(needs) <= most + 0
    if stuck and string.sub(ticket, 1, #client + 1) ~= client .. ':' then
      local counts = ARGV[10] ~= '0' and redis.pcall('PUBSUB', 'NUMSUB', KEYS[1] .. ':wake:' .. client) -- R4
      stuck = counts and (counts[2] or 0) > 0
    end
  end
  if stuck and mode == 'try' then
    if not other then return { BUSY, now, now - last, ends - now, -1, size } end
    stuck = false
  end
  if stuck and limit then
    -- @include lib/known.lua
    local full = known.full(KEYS, redis.call('HGET', KEYS[1], 'looked'), now, ticket, size, tonumber(limit))
    if full then return { FULL, now, last, ends, -1, size, now - full, other and DIFFERS or 0 } end
    stuck = full == nil
  end
  local waits = stuck and mode == 'wait' and redis.call('ZADD', KEYS[2], 'NX', format('%.0f', arrival), ticket) == 1
  if waits or stuck and mode == 'look' and not redis.call('ZSCORE', KEYS[2], ticket) then
    local text, ahead = format('%.0f', arrival), -1
    redis.call('HSET', KEYS[1], 'high', text)
    if waits then
      ahead, size = size > 0 and redis.call('ZRANK', KEYS[2], ticket) + 1 or 1, size + 1
    end
    if waits and size == 1 then -- The queue is new.
      local longest = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
      kept = math.max(kept, SPARE_US + math.max(longest, queue_need(1, now), token_need(last, now), (q[6] or 0) + 0))
      redis.call('HSET', KEYS[1], 'kept', format('%.0f', kept))
      for _, key in ipairs({ KEYS[1], KEYS[2], holders }) do redis.call('PEXPIRE', key, format('%.0f', (kept - now) / 1000)) end
    end
    if ahead == size and arrival == now and not other then return text .. ' ' .. (h[4] or 0) .. ' ' .. first[4] .. ' ' .. size end
    return { WAITING, now, last, ends, ahead, size, arrival, other and DIFFERS or 0 }
  end
end
-- @include lib/permits.lua
-- @include lib/place.lua
local s = permits.read(KEYS, now, tonumber(ARGV[7]) or sent_by(notafter, now), ARGV[10] or '1', ARGV[5], born)
if not s.new then
  local ok, differs = permits.state(s, ARGV[5], born)
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
    ticket = ticket, kind = kind, permits = n, lease_ms = tonumber(lease_ms), phase = string.sub(ARGV[11] or 'held', 1, 1),
  } }, ARGV[4])
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
ahead, arrival, size = place.wait(s, ticket, mode, tonumber(ARGV[8] or 0), tonumber(ARGV[9] or 0), size)
if ahead == (s.owner and 1 or 0) then queue.advance(s, client) end -- It came in ahead of one that does not fit.
hold.keep(s, size)
taken = s.taken[ticket]
if taken then return permits.granted(s, 0, taken.token, taken.ends) end
return permits.reply(s, base.WAITING, ahead, size, arrival)
