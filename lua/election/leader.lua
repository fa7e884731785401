-- election/leader: who leads, and what it has proclaimed.
--
-- KEYS  lock      hash  who leads, until when, what was proclaimed
-- ARGV  none
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, or UNSET if nobody leads whose lease lasts and who has proclaimed; arrival is the generation,
--       until the end of the lease; states has the value, the client for operators, and since when it holds
-- RETRY safe: it only reads

-- @include lib/leader.lua
local s = leader.read(KEYS[1], base.now())
if not s.leads then return leader.reply(s, base.UNSET, '0') end
return leader.reply(s, base.DONE, '0', { redis.call('HGET', s.lock, 'value'), s.who, s.since })
