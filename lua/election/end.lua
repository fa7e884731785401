-- election/end: fairlock/end; if a leader resigns and nobody leads after it, the observers are told.
--
-- The next leader tells the observers itself, with what it proclaims.
--
-- KEYS  lock      hash  who leads, until when, the last token, what was proclaimed
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  ticket    client:number:kind:permits:lease:grant
--       floor     the highest token that the client has seen
--       token     only if it holds with this token; 0 for any; missing: 0
--       counted   0 if subscribers cannot be counted; missing: they can
--       note      words without a space that the message of a grant is to carry; may be missing
--       rests     not asked for
--       how       how the leadership ended, if the leader did not resign, as in fairlock/end; may be missing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       as of fairlock/end
-- RETRY safe: as fairlock/end is; what is told twice is old news the second time

local function finish()
  -- @include fairlock/end.lua
end

local reply = finish()
-- @include lib/vacant.lua
return reply
