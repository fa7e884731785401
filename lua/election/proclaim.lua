-- election/proclaim: the leader's value, for all to see.
--
-- The lock is the only key, because a script with an absent key is refused while a slot moves.
--
-- KEYS  lock      hash  who leads, until when, what was proclaimed
-- ARGV  ticket    who must lead
--       token     the token of its hold
--       number    of the request; higher than those of earlier ones of the same hold
--       who       what operators are told of the client
--       notafter  server µs after which the request changes nothing
--       value     what is proclaimed
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the generation in arrival; or REFUSED with the reason in states: expired, forced or
--       forgotten
-- RETRY safe: a request whose number is not above the last one changes nothing

-- @include lib/hold.lua
local now = base.now()
if now > tonumber(ARGV[5]) then return { base.LATE, now } end

local s = hold.read(KEYS, now, '0', '0')
if s.owner ~= ARGV[1] or s.token ~= tonumber(ARGV[2]) or s.ends <= now then
  -- @include lib/reason.lua
  return hold.reply(s, base.REFUSED, -1, 0, 0, { reason.of(s, ARGV[1]) })
end
local h = redis.call('HMGET', s.lock, 'revision', 'proclaimed', 'number')
local revision = tonumber(h[1] or 0)
if h[2] == ARGV[2] and tonumber(ARGV[3]) <= tonumber(h[3]) then
  return hold.reply(s, base.DONE, -1, 0, revision)
end

-- The time, so that it is no generation that was there before, also where some were lost.
revision = math.max(revision + 2, now)
redis.call('HSET', s.lock, 'value', ARGV[6], 'proclaimed', ARGV[2], 'number', ARGV[3], 'who', ARGV[4],
  'revision', base.int(revision))
local sent = redis.pcall('PUBLISH', s.lock .. ':wake', 'O ' .. base.int(revision - 1))
if type(sent) == 'table' and sent.err then hold.flag(s, hold.UNWOKEN) end
return hold.reply(s, base.DONE, -1, 0, revision)
