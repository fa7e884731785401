-- fairlock/inspect: who holds and who waits. It changes nothing.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  most      how many tickets of the queue to tell
-- REPLY {now, token, limit, used, holders, waiting, {ticket, arrival, …}, {suspect, …}, state}
--       holders has for each hold: ticket, until, since, permits, phase, token, count, and nothing: what operators are
--       told of the client is in a key of the client. A name that rests has a ticket of kind z; the phase is expired if the
--       hold was not released. The state is how the hold before the present one ended, or the last if nobody holds, as
--       "!how:token"; empty, if nothing is known
-- RETRY safe: it only reads

-- @include lib/base.lua
local now = base.now()
local h = redis.call('HMGET', KEYS[1], 'token', 'owner', 'until', 'since', 'phase', 'entries', 'version', 'lapsed', 'rests', 'previous')
if h[7] then error(other_version(h[7])) end
if h[2] == NOBODY then h[2] = false end
local holders = {}
if h[2] then
  local count = string.match(h[6] or '', '^' .. h[1] .. ':%d+:(%d+)$')
  local since = string.match(h[4] or '', '^' .. h[1] .. ':(%d+)$') or h[1]
  local till = h[3] or base.int(ends_at(nil, tonumber(h[1]) or 0, (ticket_terms(h[2]) or 0) * 1000))
  local phase, ticket = h[5] or 'held', h[2]
  local of, rests, least = string.match(h[9] or '', '^(%d+):(%d+):(%d+)$')
  if of == h[1] and till + 0 <= now and rests + 0 > now then
    -- It ran out, and nobody has looked since.
    phase, till = 'expired', base.int(math.min(rests, now + least))
    ticket = string.match(ticket, '^[^:]*:[^:]*:') .. 'z:1:0:0'
  end
  of = string.match(ticket, '^([^:]*:[^:]*:)z:')
  if of and string.sub(h[8] or '', 1, #of) == of then phase = 'expired' end
  h[2] = not (of and till + 0 <= now) and h[2] -- Nobody has looked since the rest was over.
  holders = h[2] and { ticket, till, since, '1', phase, h[1], count or '1', '' } or {}
end
local told, how = string.match(h[10] or '', '^(%d+):(%a+:%d+)')
if told ~= '0' and (told ~= h[1] or not h[2] or string.find(h[2], ':z:', 1, true)) then told = nil end
return { now, h[1] or '0', 1, h[2] and 1 or 0, holders,
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1, 'WITHSCORES'),
  redis.call('ZRANGE', KEYS[3], '-inf', base.int(now), 'BYSCORE', 'LIMIT', 0, ARGV[1]), h[1] and '!' .. (told and how or 'released:0') or '' }
