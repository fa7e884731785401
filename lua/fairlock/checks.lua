-- fairlock/checks: fairlock/check for several tickets of one client, as far as there is nothing to do and no news.
--
-- That is so where a ticket waits at its place, somebody else holds for a lease that goes on, and at most 400 wait. Then only
-- the keys are prolonged, as a check does it (I6).
--
-- In a cluster all locks are of one slot.
--
-- KEYS  for each ticket:
--       lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  notafter  server µs after which nothing changes
--       client    whose tickets these are
--       counted   not used
--       then for each ticket: the ticket and its arrival
-- REPLY {now, the highest of the last tokens, then for each ticket two: its place, and until when the holder's lease lasts;
--       or -1 and 0: fairlock/check has to look}
-- RETRY safe: it only lets the keys live longer

local client = ARGV[2]
local t = redis.call('TIME')
local now = micros(t)
local late = now > tonumber(ARGV[1])
local reply, open = { now, 0 }, false
for i = 1, #KEYS / 3 do
  local lock, queue, suspects = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local ticket, arrival = ARGV[2 * i + 2], tonumber(ARGV[2 * i + 3])
  local place, ends = -1, 0
  local h = late and {} or redis.pcall('HMGET', lock, 'owner', 'until', 'token', 'phase', 'version', 'high', 'kept', 'scan', 'marked')
  local lasts, first = ticket_terms(h[1] or '')
  if lasts and h[1] ~= ticket and not h[5] and not h[8] and not (h[9] and redis.pcall('ZSCORE', suspects, client)) then
    lasts = lasts * 1000
    local lease, token, high = h[4] == 'granted' and math.min(lasts, first * 1000) or lasts, tonumber(h[3]), tonumber(h[6] or 0)
    local till = ends_at(h[2], token, lease)
    local score = tonumber(redis.pcall('ZSCORE', queue, ticket))
    local size = score and redis.call('ZCARD', queue)
    if score and score <= arrival and high > 1 and high >= arrival and size <= 400 and till > now and till - now <= lease then
      local need = math.max(till, token_need(token, now), queue_need(size, now))
      local kept = tonumber(h[7] or 0)
      if kept <= math.max(need, now + lasts) + MOST_US then
        -- The first is always prolonged: a server that accepts no writes refuses that, and so it is noticed.
        if not open or kept < need + LEAST_US then
          kept = math.max(kept, need + SPARE_US)
          local ms = string.format('%.0f', (kept - now) / 1000)
          redis.call('PEXPIRE', lock, ms) -- It is accepted when memory is full, and so is what a script writes after it.
          redis.call('HSET', lock, 'kept', string.format('%.0f', kept))
          redis.call('PEXPIRE', queue, ms)
          if h[9] then redis.call('PEXPIRE', suspects, ms) end
          open = true
        end
        reply[2] = math.max(reply[2], token)
        place, ends = redis.call('ZRANK', queue, ticket) + 1, till
      end
    end
  end
  reply[2 * i + 1], reply[2 * i + 2] = place, ends
end
return reply
