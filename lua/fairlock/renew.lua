-- fairlock/renew: let a hold last for another lease. It never revives one that has ended.
--
-- The lock is the only key, because a script with an absent key is refused while a slot moves, unless the holder wants
-- to be told when somebody waits, or the name is to stay taken or be remembered for some time.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival. Only if the holder wants to be told when somebody waits, and with suspects; else absent
--       suspects  zset  clients that let a lease run out, by time of the mark. Only if the name is to stay taken, or be
--                 remembered; else absent
-- ARGV  ticket    whose hold it is
--       token     the token of the hold
--       lease     ms from now until the end of the lease
--       phase     held, or final if this is the last renewal; with the queue, idle for held if nobody uses the hold now
--       notafter  server µs after which the renewal changes nothing
--       entries   of a reentrant hold: revision:count, how many times it was entered; or, with suspects, for how many ms
--                 from its grant the name is to stay taken, whatever becomes of the hold; else absent, or empty
--       keeps     with suspects: for how many ms after the lease the keys are to live if the hold is not released,
--                 with w behind it if its holder wants to be told when somebody waits; else absent
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED, or REFUSED with the reason in states: expired, forced, died or forgotten; the flag WANTED
--       with the queue, if somebody waits: else the holder will be told by message
-- RETRY safe: a second call prolongs from its own time

-- @include lib/hold.lua
-- @include lib/reason.lua
local now = base.now()
if now > tonumber(ARGV[5]) then return { base.LATE, now } end

local s = hold.read({ KEYS[1], KEYS[2] }, now, '0', '0')
if s.owner ~= ARGV[1] or s.token ~= tonumber(ARGV[2]) or s.ends <= now then
  return hold.reply(s, base.REFUSED, -1, 0, 0, { reason.of(s, ARGV[1]) })
end
local phase = ARGV[4] == 'idle' and 'held' or ARGV[4]
local keeps, wish = string.match(ARGV[7] or '0', '^(%d+)(w?)$')
local wants = KEYS[2] and (not KEYS[3] or wish == 'w')
if wants and redis.call('ZCARD', KEYS[2]) > 0 then
  hold.flag(s, hold.WANTED)
elseif wants then
  phase = phase == 'final' and 'final wants' or ARGV[4] == 'idle' and 'idle' or 'wants'
end
s.ends = now + ARGV[3] * 1000
hold.open(s)
redis.call('HSET', s.lock, 'until', base.int(s.ends), 'phase', phase)
if KEYS[3] then
  s.suspects = KEYS[3]
  hold.stay(s, (tonumber(ARGV[6]) or 0) * 1000, keeps * 1000)
end
if ARGV[6] and string.find(ARGV[6], ':', 1, true) then
  -- The token says which hold this is about; a revision older than the stored one came late.
  local token, revision = string.match(redis.call('HGET', s.lock, 'entries') or '', '^(%d+):(%d+):')
  if token ~= ARGV[2] or tonumber(revision) < tonumber(string.match(ARGV[6], '^%d+')) then
    redis.call('HSET', s.lock, 'entries', ARGV[2] .. ':' .. ARGV[6])
  end
end
return hold.reply(s, base.GRANTED)
