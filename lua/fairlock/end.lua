-- fairlock/end: the end of a ticket: out of the queue, freed if it holds, and the next is served.
--
-- Release, leaving the queue and giving back a grant are this one operation (R9).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark. Without it only what is usual is done, and
--                 else the answer is UNUSUAL
-- ARGV  ticket    client:number:kind:tokens:lease:grant
--       floor     by how much the highest token that the client has seen is above the token of the hold; with all keys, and
--                 for a ticket that does not hold, that highest token itself; missing: 0, and nobody is thought to wait
--       token     0 or missing: whatever its token. Else only if the hold has this token, or one that it came to inside its
--                 client, which is then the last one used. With the very token of its grant the last token also rises to
--                 floor, as the token of a hold of several names is above it (multilock/end)
--       counted   0 if subscribers cannot be counted; missing: they can
--       note      words without a space that the message of a grant is to carry; may be missing, or empty
--       rests     yes: the hold was used, so the name stays taken for as long as its renewal has said; missing or empty: it
--                 frees at once, without a token also what rests already
--       how       how the hold ended, if it was not released: expired, stalled, or unused, if no call had it; may be missing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}, or without all
--       keys a number alone: DONE; UNUSUAL, if nothing was done: ask with all keys; or below 0: DONE, and handed on at
--       that time, for as long as a grant to the ticket itself, with the time as the token; and the first eight where one of
--       these is not so, or all, where the next is the same client's
--       status is DONE if the ticket was the owner, REFUSED if not; then states holds the reason:
--       expired, forced or forgotten. It does not say how many wait
-- RETRY safe: a second call finds nothing of this ticket, and reports again what was granted to the
--       calling client and is not confirmed

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here; and a number alone costs Redis less than an array. The numbers are those of lib/base, the names in
-- capitals and the calls those of lib/rules.
local DONE, HANDED, UNUSUAL = 5, 8, 12
local ticket, format = ARGV[1], string.format
-- Without high nobody has queued since the last release, and the lease is short enough for keys that live for a minute more.
local h = ARGV[2] and redis.call('HMGET', KEYS[1], 'owner', 'high', 'marked', 'token', 'kept', 'until', 'phase', 'mark', 'scan')
  or redis.call('HMGET', KEYS[1], 'owner', 'high', 'marked')
local plain = h[1] == ticket and (ARGV[3] or '0') == '0' and not ARGV[6]
local head = plain and h[2] and redis.call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES') -- @logged if plain then expect() end

-- Ours, and nobody waits: free it. HDEL is accepted when memory is full.
if plain and not (head and head[1]) and (KEYS[3] or not h[3]) then
  if not h[2] and not h[3] then
    redis.call('HDEL', KEYS[1], 'owner', 'until', 'phase') -- @logged note(KEYS[1], ticket, redis.call('HGET', KEYS[1], 'token'), nil, 'released')
    return KEYS[3] and { DONE } or DONE
  end
  local k = redis.call('HMGET', KEYS[1], 'token', 'kept', 'until', 'phase')
  local lease, first = ticket_terms(ticket)
  lease = (k[4] == 'granted' and math.min(tonumber(lease), tonumber(first)) or tonumber(lease)) * 1000
  local m = h[3] and redis.call('TIME') -- Nobody waits, so suspects are kept for a minute: see hold.marked.
  local calm = m and redis.call('ZCOUNT', KEYS[3], '(' .. format('%.0f', micros(m) - SUSPECT_LEAST_US), '+inf') == 0
  redis.call('HDEL', KEYS[1], 'owner', 'until', 'phase', 'high') -- @logged note(KEYS[1], ticket, k[1], nil, 'released')
  if lease > MOST_US - SPARE_US or tonumber(k[2] or 0) > ends_at(k[3], k[1], lease) - lease + MOST_US then
    -- Keys that were kept for many waiters or a long lease are cut, except as long as a token is later than the clock.
    local t = redis.call('TIME')
    local now = micros(t)
    local ms = format('%.0f', (token_rest(tonumber(k[1]), now) + SPARE_US) / 1000)
    redis.call('HDEL', KEYS[1], 'kept')
    redis.call('PEXPIRE', KEYS[1], ms)
    if h[3] then redis.call('PEXPIRE', KEYS[3], ms) end
  end
  if calm then
    redis.call('HDEL', KEYS[1], 'marked')
    redis.call('ZREMRANGEBYRANK', KEYS[3], 0, 2047)
  end
  return KEYS[3] and { DONE } or DONE
end

-- Ours, nothing unusual about the queue, and the head hears: hand on.
if plain and head and head[1] and ARGV[4] ~= '0' then
  local client, lease, first = string.match(head[1], '^([^:]*):%d+:%a:%d+:(%d+):(%d+)$')
  local q = h[4] and h or redis.call('HMGET', KEYS[1], 'owner', 'high', 'marked', 'token', 'kept', 'until', 'phase', 'mark', 'scan')
  local usual = client and not q[3] and not q[8] and not q[9]
  local mine = usual and string.sub(ticket, 1, #client + 1) == client .. ':'
  local channel = usual and KEYS[1] .. ':wake:' .. client
  local counts = usual and not mine and redis.pcall('PUBSUB', 'NUMSUB', channel) -- R4, R5
  if mine or (counts and counts[2] and counts[2] > 0) then
    local t = redis.call('TIME')
    local now = micros(t)
    local lasts = first + 0 <= lease + 0 and first or lease -- As text, which the message wants.
    local ends = now + lasts * 1000
    local last, floor = q[4] + 0, (ARGV[2] or 0) + 0
    if not KEYS[3] then floor = last + floor end
    local token = next_token(last, believed(floor, now), now)
    local was = ends_at(q[6], last, ticket_terms(ticket) * 1000)
    local kept, need = (q[5] or 0) + 0, math.max(ends, token_need(token, now), queue_need(0, now))
    local lives, most = math.max(kept, was + SPARE_US), math.max(need, now + lease * 1000) + MOST_US -- As hold.keep has it.
    if lives > most then most = math.max(most, queue_need(redis.call('ZCARD', KEYS[2]), now) + MOST_US) end
    if kept >= need + LEAST_US and lives <= most then
      local since, till = micros_text(t), format('%.0f', ends)
      local fence = token == now and since or format('%.0f', token)
      redis.call('ZREM', KEYS[2], head[1])
      redis.call('HSET', KEYS[1], 'owner', head[1], 'until', till, 'token', fence, 'phase', 'granted')
      local ahead = token == now and '0' or format('%.0f', token - now)
      local sent = mine or redis.pcall('PUBLISH', channel,
        'G ' .. grant_words(head[1], since, ahead, lasts) .. grant_note(ARGV[5]))
      if mine or type(sent) == 'number' then -- @logged note(KEYS[1], ticket, q[4], since, 'released')
        if token ~= now then redis.call('HSET', KEYS[1], 'since', since_words(fence, since)) end
        if mine then
          return { DONE, now, token, ends, -1, 0, 0, 0, 0, 0, { head[1], token, ends }, {} }
        end
        if not KEYS[3] and token == now and string.sub(ticket, -1 - #first) == ':' .. first and lasts == first then
          return -now
        end
        return { DONE, now, token, ends, -1, 0, 0, HANDED }
      end
      -- Refused: back to where it was, for the long way to tell of it and to keep the queue's key.
      redis.call('ZADD', KEYS[2], head[2], head[1])
      redis.call('PEXPIRE', KEYS[2], format('%.0f', (kept - now) / 1000))
      redis.call('HSET', KEYS[1], 'owner', ticket, 'token', q[4])
      if q[6] then redis.call('HSET', KEYS[1], 'until', q[6], 'phase', q[7] or 'held') else redis.call('HDEL', KEYS[1], 'until', 'phase') end
    end
  end
end
if not KEYS[3] then return UNUSUAL end

local size = redis.call('ZCARD', KEYS[2])
-- @include lib/hold.lua
local s = hold.read(KEYS, base.now(), ARGV[2] or 0, ARGV[4])
local client = hold.client(ticket)
s.caller, s.note = client, ARGV[5] ~= '' and ARGV[5]
local status, states, rests, used = base.DONE, nil, false, ARGV[6] == 'yes'
local last = tonumber(ARGV[3] or 0)
if s.owner == ticket and (last == 0 or hold.among(s, last)) then
  if last == s.token and s.floor > last then
    last, s.created = s.floor, true -- The key has to outlive that token.
  end
  rests = used and hold.rest(s, ARGV[7])
  if not rests then hold.free(s, ARGV[7]) end -- @logged hold.clear(s) note(s.lock, ticket, base.int(s.token), base.int(s.now), ended(ARGV[7]))
  if last > s.token then
    hold.clear(s)
    s.token = last
    redis.call('HSET', s.lock, 'token', base.int(last))
  end
else
  -- ZREM, too, is accepted when memory is full, and so is what a script writes after it.
  status = base.REFUSED
  size = size - redis.call('ZREM', s.queue, ticket)
  if not used and last == 0 and hold.rests(s, ticket) then hold.free(s) end
  if size == 0 then hold.forget(s) end
end
if rests or not s.owner or s.ends <= s.now or s.ends - s.now > s.lease then
  -- @include lib/queue.lua
  expiry.settle(s)
  queue.advance(s, client)
  hold.keep(s, size, true)
end
if status == base.REFUSED then
  -- @include lib/reason.lua
  states = { reason.of(s, ticket) }
  if s.owner and s.phase == 'granted' and hold.client(s.owner) == client then
    hold.report(s)
  end
end
if rests then hold.look(s) end
return hold.reply(s, status, -1, 0, 0, states)
