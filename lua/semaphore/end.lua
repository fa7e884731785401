-- semaphore/end: the end of a ticket: out of the queue, its permits given back, and the heads that fit are served.
--
-- Release, leaving the queue and giving back a grant are this one operation (R9).
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  ticket    client:number:kind:permits:lease:grant
--       floor     the highest token that the client has seen; missing: none above that of the hold, and nobody is thought to
--                 wait
--       token     only if it holds with this token; 0 or missing: any
--       counted   0 if subscribers cannot be counted; missing: they can
--       note      words without a space that the message of a grant is to carry; may be missing, or empty
--       rests     yes: the hold was used, so its permits stay taken for as long as its renewal has said; missing or empty: they
--                 are free at once, without a token also what rests already
--       how       of a write hold: how it ended, if it was not released, as in fairlock/end; may be missing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}, or DONE alone
--       status is DONE if the ticket held, REFUSED if not; then states holds the reason: expired, forced or
--       forgotten
-- RETRY safe: a second call finds nothing of this ticket, and reports again what was granted to the calling
--       client and is not confirmed

-- The usual cases come ahead of the includes, because the making of their functions costs as much as what
-- is done here. The numbers are those of lib/base, the names in capitals and the calls those of lib/rules.
local DONE, HANDED = 5, 8
local ticket, format = ARGV[1], string.format
local holders = KEYS[4]
-- Without high nobody has queued since the last release.
local h = ARGV[2] and redis.call('HMGET', KEYS[1], ticket, 'used', 'high', 'kept', 'limit', 'token', 'mark', 'scan', 'marked')
  or redis.call('HMGET', KEYS[1], ticket, 'used', 'high', 'kept')
local size = h[1] and not h[3] and 0 or redis.call('ZCARD', KEYS[2])
local ours = h[1] and (ARGV[3] or '0') == '0' and not ARGV[6]
local freed, number, lease, since, used
if ours then
  number, lease, since = string.match(h[1], '^(%d+):%d+:(%d+):%a:(%d+):')
  lease, used = tonumber(lease), h[2] - number
end

-- Ours, and nobody waits: give it back. ZREM is accepted when memory is full, and so is what follows.
if ours and size == 0 and (used == 0 or lease <= MOST_US) then
  local long = lease > MOST_US - SPARE_US
  local q = used == 0 and (long or (h[4] or 0) + 0 > since + MOST_US)
    and redis.call('HMGET', KEYS[1], 'stated', 'token', 'marked', 'limit')
  redis.call('ZREM', holders, ticket)
  if h[3] then redis.call('HDEL', KEYS[1], ticket, 'high') else redis.call('HDEL', KEYS[1], ticket) end
  redis.call('HSET', KEYS[1], 'used', used)
  if q then
    -- Keys that were kept for a long lease are cut, except as long as a token is later than the clock.
    local t = redis.call('TIME')
    local now = micros(t)
    local ahead = token_rest(tonumber(q[2] or 0), now)
    if q[1] == q[4] and (long or h[4] - now > ahead + MOST_US) then
      local ms = format('%.0f', (ahead + SPARE_US) / 1000)
      redis.call('HDEL', KEYS[1], 'kept')
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('PEXPIRE', holders, ms)
      if q[3] then redis.call('PEXPIRE', KEYS[3], ms) end
    end
  end
  return DONE
end

-- Ours, nothing is unusual about the queue, and its head hears: hand on, if it fits and the rest is nothing or not enough
-- for the next ticket. After a long lease keys may have to be cut.
if ours and size > 0 and lease <= MOST_US and ARGV[4] ~= '0' then
  local q = ARGV[2] and h
    or redis.call('HMGET', KEYS[1], ticket, 'used', 'high', 'kept', 'limit', 'token', 'mark', 'scan', 'marked')
  local heads = redis.call('ZRANGE', KEYS[2], 0, 1, 'WITHSCORES')
  local client, kind, needs, lease_ms, first = string.match(heads[1], '^([^:]*):%d+:(%a):(%d+):(%d+):(%d+)$')
  local limit, mine = (q[5] or 0) + 0, string.match(ticket, '^[^:]*')
  local usual = client and kind ~= 'r' and tonumber(needs) <= limit and not q[7] and not q[8] and not q[9]
  local fits = usual and tonumber(needs) <= limit - used
  local waits = { usual and client ~= mine and KEYS[1] .. ':wake:' .. client or nil }
  if fits and limit - used - needs > 0 and heads[3] then
    local left = limit - used - needs
    local other, more = string.match(heads[3], '^([^:]*):%d+:%a:(%d+):%d+:%d+$')
    usual = other and tonumber(more) > left and tonumber(more) <= limit
    if usual and other ~= mine and other ~= client then waits[#waits + 1] = KEYS[1] .. ':wake:' .. other end
  end
  if usual and #waits > 0 then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', unpack(waits)) -- R4, R5
    usual = (counts[2] or 0) > 0 and (counts[4] or 1) > 0
  end
  if usual then
    local all = redis.call('ZRANGE', holders, 0, 2, 'WITHSCORES')
    local next_end = tonumber(all[all[3] == ticket and 6 or 4] or 0) -- Of the others.
    local t = redis.call('TIME')
    local now = micros(t)
    local lasts = first + 0 <= lease_ms + 0 and first or lease_ms -- As text, which the message wants.
    local ends, last = fits and now + lasts * 1000 or 0, (q[6] or 0) + 0
    local floor = fits and believed((ARGV[2] or 0) + 0, now) or 0
    local need = math.max(ends, token_need(math.max(last, floor), now), queue_need(size, now))
    usual = all[1] == GUARD and (next_end == 0 or next_end > now) and (q[4] or 0) + 0 >= need + LEAST_US
    if usual then
      -- This first: a replica refuses it, before anybody is told of a grant.
      freed = true
      redis.call('ZREM', holders, ticket)
      redis.call('HDEL', KEYS[1], ticket)
      if not fits then
        redis.call('HSET', KEYS[1], 'used', used)
        return { DONE, now, last, next_end, -1, size, 0, 0 }
      end
      local token, since = next_token(last, floor, now), micros_text(t)
      local ahead = token == now and '0' or format('%.0f', token - now)
      local sent = client == mine or redis.pcall('PUBLISH', waits[1],
        'G ' .. grant_words(heads[1], since, ahead, lasts) .. grant_note(ARGV[5]))
      if client == mine or type(sent) == 'number' then
        local text, phase = token == now and since or format('%.0f', token), client == mine and 'r' or 'g'
        redis.call('ZREM', KEYS[2], heads[1])
        redis.call('ZADD', holders, ends, heads[1])
        redis.call('HSET', KEYS[1], 'used', used + needs, 'token', text, heads[1],
          needs .. ':' .. text .. ':' .. lasts .. '000:' .. phase .. ':' .. since .. ':')
        if next_end == 0 or ends < next_end then next_end = ends end
        if phase == 'r' then
          return { DONE, now, token, next_end, -1, size, 0, 0, 0, 0, { heads[1], token, ends }, {} }
        end
        return { DONE, now, token, next_end, -1, size, 0, HANDED }
      end
      redis.call('HSET', KEYS[1], 'used', used) -- Refused: the long way tells of it.
    end
  end
end

-- @include lib/permits.lua
local s = permits.read(KEYS, base.now(), ARGV[2] or 0, ARGV[4] or '1')
local client, removed = hold.client(ticket), 0
s.caller, s.note = client, ARGV[5] ~= '' and ARGV[5]
local n, token, lasts = permits.parse(h[1] or '')
local rests, used_up = false, ARGV[6] == 'yes'
if freed then
  s.lives = s.now + lasts + SPARE_US
elseif n and ((ARGV[3] or '0') == '0' or tonumber(ARGV[3]) == token) then
  freed, rests = true, permits.free(s, ticket, n, s.now + lasts, used_up and h[1])
  permits.finish(s, ticket, n, token, ARGV[7])
else
  -- ZREM, too, is accepted when memory is full, and so is what a script writes after it.
  removed = redis.call('ZREM', s.queue, ticket)
  size = size - removed
  local left = not used_up and (ARGV[3] or '0') == '0' and s.rests > s.now and permits.resting(ticket)
  local m, _, spare = permits.parse(left and redis.call('HGET', s.lock, left) or '')
  if m then permits.free(s, left, m, s.now + spare) end
  if size == 0 then hold.forget(s) end
end
permits.settle(s)
queue.advance(s, client)
hold.keep(s, size)
if rests then hold.look(s) end
if freed then return permits.reply(s, base.DONE, -1, size, 0) end
-- @include lib/reason.lua
if removed == 0 then permits.unconfirmed(s, client) end
return permits.reply(s, base.REFUSED, -1, size, 0, { n and 'expired' or reason.of(s, ticket) })
