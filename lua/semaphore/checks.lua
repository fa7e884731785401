-- semaphore/checks: semaphore/check for several tickets of one client, as far as there is nothing to do and no news.
--
-- That is so where a ticket waits at its place, leases go on, what is free is not enough for the head, which lives, and at
-- most 400 wait. Then only the keys are prolonged, as a check does it (I6).
--
-- In a cluster all locks are of one slot.
--
-- KEYS  for each ticket:
--       lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  notafter  server µs after which nothing changes
--       client    whose tickets these are
--       counted   1 if subscribers can be counted
--       then for each ticket: the ticket and its arrival
-- REPLY {now, the highest of the last tokens, then for each ticket two: its place, and until when the first of the leases
--       lasts; or -1 and 0: semaphore/check has to look}
-- RETRY safe: it only lets the keys live longer

local client = ARGV[2]
local t = redis.call('TIME')
local now = micros(t)
local late = now > tonumber(ARGV[1])
local reply, open = { now, 0 }, false

-- waits says whether the head waits for more than is free, and its client lives.
local function waits(lock, queue, room, limit, marked)
  if room <= 0 then return true end
  local head = redis.call('ZRANGE', queue, 0, 0)[1]
  local of, permits = string.match(head, '^([^:]*):%d+:[prw]:(%d+):%d+:%d+$')
  permits = tonumber(permits or 0)
  if permits <= room or permits > limit then return false end
  if of == client then return true end
  if marked then return false end
  if ARGV[3] ~= '1' then return true end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', lock .. ':wake:' .. of)
  return not counts.err and counts[2] > 0
end

for i = 1, #KEYS / 4 do
  local lock, queue, suspects, holders = KEYS[4 * i - 3], KEYS[4 * i - 2], KEYS[4 * i - 1], KEYS[4 * i]
  local ticket, arrival = ARGV[2 * i + 2], tonumber(ARGV[2 * i + 3])
  local place, ends = -1, 0
  local h = late and {} or redis.pcall('HMGET', lock, 'limit', 'used', 'token', 'high', 'kept', 'scan', 'mark', 'marked', ticket)
  local limit, used, score = tonumber(h[1]) or 0, tonumber(h[2] or 0), tonumber(redis.pcall('ZSCORE', queue, ticket))
  if score and used > 0 and not h[6] and not h[7] and not h[9] and not (h[8] and redis.pcall('ZSCORE', suspects, client)) then
    local high, size = tonumber(h[4] or 0), redis.call('ZCARD', queue)
    local first, last = redis.pcall('ZRANGE', holders, 0, 1, 'WITHSCORES'), redis.pcall('ZRANGE', holders, -1, -1, 'WITHSCORES')
    local till, latest = tonumber(first[4] or 0), tonumber(last[2] or 0)
    local lease = first[1] == GUARD and till > now and string.match(redis.call('HGET', lock, last[1]) or '', '^%d+:%d+:(%d+):')
    local permits = tonumber(string.match(ticket, ':(%d+):%d+:%d+$'))
    if lease and latest - now <= tonumber(lease) and permits <= limit and score <= arrival and high > 1 and high >= arrival
      and size <= 400 and waits(lock, queue, limit - used, limit, h[8]) then
      local token, kept = tonumber(h[3]), tonumber(h[5] or 0)
      local need = math.max(token_need(token, now), queue_need(size, now))
      -- The first is always prolonged: a server that accepts no writes refuses that, and so it is noticed.
      if not open or kept < need + LEAST_US then
        kept = math.max(kept, math.max(need, latest) + SPARE_US)
        local ms = string.format('%.0f', (kept - now) / 1000)
        redis.call('PEXPIRE', lock, ms) -- It is accepted when memory is full, and so is what a script writes after it.
        redis.call('HSET', lock, 'kept', string.format('%.0f', kept))
        redis.call('PEXPIRE', queue, ms)
        if h[8] then redis.call('PEXPIRE', suspects, ms) end
        redis.call('PEXPIRE', holders, ms)
        open = true
      end
      reply[2] = math.max(reply[2], token)
      place, ends = redis.call('ZRANK', queue, ticket) + 1, till
    end
  end
  reply[2 * i + 1], reply[2 * i + 2] = place, ends
end
return reply
