-- fairlock/renewals: fairlock/renew for several holds of one client, as far as there is nothing unusual about them.
--
-- In a cluster all locks are of one slot.
--
-- KEYS  lock      hash  one for each hold: who holds, until when, the last token
-- ARGV  who       what operators are told of the client
--       notafter  server µs after which nothing changes
--       and for each hold four:
--       ticket    whose hold it is
--       token     the token of the hold
--       lease     ms from now until the end of the lease
--       phase     held, or final if this is the last renewal
-- REPLY {now, for each hold when its lease ends, or 0: then nothing was done, and fairlock/renew tells why}
-- RETRY safe: a second call prolongs from its own time

local SPARE_US = 60000000 -- of lib/base, which is not worth its making here
local who, format = ARGV[1], string.format
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local late = now > tonumber(ARGV[2])
local reply = { now }
for i, lock in ipairs(KEYS) do
  local at = 4 * i - 1
  local h = late and {} or redis.pcall('HMGET', lock, 'owner', 'token', 'until', 'kept')
  if h[1] == ARGV[at] and h[2] == ARGV[at + 1] and tonumber(h[3]) > now then
    local ends = now + ARGV[at + 2] * 1000
    -- This one first: it is accepted when memory is full, and so is what a script writes after it.
    redis.call('PEXPIRE', lock, format('%.0f', (math.max(tonumber(h[4] or 0), ends + SPARE_US) - now) / 1000))
    redis.call('HSET', lock, 'until', format('%.0f', ends), 'lease', ARGV[at + 2] .. '000', 'phase', ARGV[at + 3], 'who', who)
    reply[i + 1] = ends
  else
    reply[i + 1] = 0
  end
end
return reply
