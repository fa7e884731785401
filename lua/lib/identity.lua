-- lib/identity: who has an identity, and who had it before.
--
-- The hash has the present client and its incarnation, which is the server's time when it took the identity, in µs, above
-- all before; what else it said; in "older" the clients that had the identity before and are not buried yet at all names,
-- with blanks between. For operators, "before" has the client from which it was taken, with its incarnation, unless a witness
-- had said that it is dead; "twice" has an earlier client that has asked since, with the time of that: both live. Each is empty,
-- or "µs:name@host#pid".
-- @include lib/base.lua

local identity = {}

local LASTS_MS = '86400000' -- how long an identity is known after its last use
local MOST = 64 -- clients that are to be buried: more wait for nothing, as their leases have ended long ago

-- read is the present client, false if none is known, its incarnation, what tells its run from others, and the clients that
-- are to be buried.
function identity.read(key)
  local h = redis.call('HMGET', key, 'client', 'incarnation', 'invocation', 'older')
  local older = {}
  for client in string.gmatch(h[4] or '', '%S+') do older[#older + 1] = client end
  return h[1], tonumber(h[2] or 0), h[3] or '', older
end

-- keep lets a key live. On the identity it comes first: it is accepted when memory is full, and so is what follows.
function identity.keep(key)
  redis.call('PEXPIRE', key, LASTS_MS)
end

-- bury says which clients are to be buried: these, but for one.
function identity.bury(key, older, but)
  local left = {}
  for i = math.max(1, #older - MOST), #older do
    if older[i] ~= but then left[#left + 1] = older[i] end
  end
  if #left == 0 then redis.call('HDEL', key, 'older') else redis.call('HSET', key, 'older', table.concat(left, ' ')) end
  return left
end

-- give makes a client the present one. The one before is to be buried.
function identity.give(key, before, older, client, incarnation, who, invocation)
  identity.keep(key)
  local from = ''
  if before and before ~= '' then
    older[#older + 1] = before
    local h = redis.call('HMGET', key, 'incarnation', 'who')
    from = client ~= '' and (h[1] or '0') .. ':' .. (h[2] or '') or ''
  end
  redis.call('HSET', key, 'client', client, 'incarnation', base.int(incarnation), 'who', who, 'invocation', invocation,
    'before', from, 'twice', '')
  older = identity.bury(key, older, client)
  identity.keep(key)
  return older
end
