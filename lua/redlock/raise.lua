-- redlock/raise: let the token of a hold rise to the one that a quorum of nodes is to know of.
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  client    who holds
--       token     the token by which the hold is known: of the grant, or one that it has risen to
--       wanted    the token that it is to have, larger than token
--       notafter  server µs after which nothing changes
-- REPLY {status, now}
--       status is GRANTED if the hold has the wanted token, REFUSED if that hold is not there
-- RETRY safe: a second call finds the token that the first has set

-- @include lib/base.lua
local now = base.now()
if now > tonumber(ARGV[4]) then return { base.LATE, now } end

local h = redis.call('HMGET', KEYS[1], 'owner', 'until', 'token', 'kept', 'since')
local token, wanted = tonumber(h[3] or 0), tonumber(ARGV[3])
local ends = h[1] and ends_at(h[2], token, ticket_terms(h[1]) * 1000)
local mine = h[1] and string.match(h[1], '^[^:]*') == ARGV[1] and ends > now
if not mine or (token ~= tonumber(ARGV[2]) and token ~= wanted) then return { base.REFUSED, now } end
if token < wanted then
  -- The hold began when it did.
  local since = string.match(h[5] or '', '^' .. h[3] .. ':(%d+)$') or h[3]
  redis.call('HSET', KEYS[1], 'token', base.int(wanted), 'since', since_words(base.int(wanted), since))
  if not h[2] then redis.call('HSET', KEYS[1], 'until', base.int(ends), 'phase', 'held') end
  local need = math.max(ends, token_need(wanted, now)) -- A renewal prolongs the key and does not write that down.
  if tonumber(h[4] or 0) < need + LEAST_US then
    redis.call('HSET', KEYS[1], 'kept', base.int(need + SPARE_US))
    for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, base.int((need + SPARE_US - now) / 1000)) end
  end
end
return { base.GRANTED, now }
