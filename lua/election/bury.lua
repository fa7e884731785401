-- election/bury: fairlock/bury, and the observers are told if the dead client led and nobody leads after it.
--
-- KEYS  lock      hash  who leads, until when, the last token, what was proclaimed
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       grave     hash  that the client is dead
-- ARGV  client    who is dead
--       lasts     ms for which its requests are refused
--       floor     the highest token that the caller has seen
--       counted   1 if subscribers can be counted
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       as of fairlock/bury
-- RETRY as fairlock/bury

local function finish()
  -- @include fairlock/bury.lua
end

local reply = finish()
-- @include lib/vacant.lua
return reply
