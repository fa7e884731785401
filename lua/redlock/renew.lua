-- redlock/renew: let a hold last for another lease. It never revives one that has ended.
--
-- It differs from the fair lock's renewal in two things. The token may have risen since the grant. A hold is never
-- entered again, so there are no entries.
--
-- KEYS  lock      hash  who holds, until when, the last token
-- ARGV  ticket    whose hold it is
--       token     the token of the grant
--       lease     ms from now until the end of the lease
--       phase     held, or final if this is the last renewal
--       notafter  server µs after which the renewal changes nothing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED, or REFUSED with the reason in states: expired, forced or forgotten
-- RETRY safe: a second call prolongs from its own time

-- @include lib/hold.lua
-- @include lib/reason.lua
local now = base.now()
if now > tonumber(ARGV[5]) then return { base.LATE, now } end

local s = hold.read(KEYS, now, '0', '0')
if s.owner ~= ARGV[1] or s.token < tonumber(ARGV[2]) or s.ends <= now then
  return hold.reply(s, base.REFUSED, -1, 0, 0, { reason.of(s, ARGV[1]) })
end
s.ends = now + ARGV[3] * 1000
hold.open(s)
redis.call('HSET', s.lock, 'until', base.int(s.ends), 'phase', ARGV[4])
return hold.reply(s, base.GRANTED)
