-- election/force: fairlock/force, and the observers are told if nobody leads after it.
--
-- KEYS  lock      hash  who leads, until when, the last token, what was proclaimed
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  token     only if the hold has this token; 0 for any
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       as of fairlock/force
-- RETRY as fairlock/force

local function finish()
  -- @include fairlock/force.lua
end

local reply = finish()
-- @include lib/vacant.lua
return reply
