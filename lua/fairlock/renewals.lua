-- fairlock/renewals: fairlock/renew for several holds of one client and one lease, as far as there is nothing unusual
-- about them.
--
-- In a cluster all locks are of one slot.
--
-- KEYS  lock      hash  one for each hold: who holds, until when, the last token
-- ARGV  notafter  server µs after which nothing changes
--       lease     ms from now until the end of the leases
--       phases    a letter for each hold: h held; f final, if this is the last renewal; s still held, with the lease that
--                 is there, and by a client that knows that the key outlives it by LEAST_US. Except for the first hold,
--                 only the end of the lease is written then; w held, by a client that wants to be told when somebody waits,
--                 and that nobody has queued since it said so; i the same, and nobody uses the hold now
--       and for each hold two:
--       ticket    whose hold it is
--       token     the token of the hold
-- REPLY {now, when the leases end, then the numbers of the holds that were not renewed: fairlock/renew tells why}
-- RETRY safe: a second call prolongs from its own time

local FINAL, STILL, WANTS, IDLE = 102, 115, 119, 105
local lease, phases = ARGV[2], ARGV[3]
local t = redis.call('TIME')
local now = micros(t)
local late = now > tonumber(ARGV[1])
local ends = now + lease * 1000
local till = string.format('%.0f', ends)
local reply, open = { now, ends }, false
for i, lock in ipairs(KEYS) do
  local phase = string.byte(phases, i)
  local wants = phase == WANTS or phase == IDLE
  local still = wants or open and phase == STILL
  local h = late and {} or redis.pcall('HMGET', lock, 'owner', 'token', 'until', still and 'phase' or 'kept')
  if h[1] ~= ARGV[2 * i + 2] or h[2] ~= ARGV[2 * i + 3] or ends_at(h[3], h[2], ticket_terms(h[1]) * 1000) <= now or wants and not wants_word(h[4]) then
    reply[#reply + 1] = i
  elseif still and not wants and h[4] == 'held' then
    redis.call('HSET', lock, 'until', till)
  else
    -- This one first: it is accepted when memory is full, and so is what a script writes after it.
    local kept = tonumber(still and redis.call('HGET', lock, 'kept') or not still and h[4] or 0)
    redis.call('PEXPIRE', lock, string.format('%.0f', (math.max(kept, ends + SPARE_US) - now) / 1000))
    redis.call('HSET', lock, 'until', till, 'phase', phase == FINAL and 'final' or phase == IDLE and 'idle' or wants and 'wants' or 'held')
    open = true
  end
end
return reply
