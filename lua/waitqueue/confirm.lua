-- waitqueue/confirm: a client makes sure that it still has its identity, and says which names it uses.
--
-- A server that lost what it knew, or knows only of an earlier incarnation, learns it here.
--
-- KEYS  identity     hash  the present client, its incarnation, and those before that are not buried yet
--       names        zset  the names that the client may have something of, kind:{name}, each by a number
-- ARGV  client       who asks
--       incarnation  its incarnation
--       who          name@host#pid
--       invocation   as in waitqueue/raise
--       then for each name: kind:{name} and its number, which no entry had before; below 0 if the client has nothing of the
--                    name any more: then it is removed, unless it was entered again with another number
-- REPLY {status, now}
--       status is DONE; REFUSED, if the identity is another client's; WAITING, if the server did not know of this
--       incarnation: then the client has to enter all its names again, and to bury those before
-- RETRY safe: it says again what is so

-- @include lib/identity.lua
local client, mine, now = ARGV[1], tonumber(ARGV[2]), base.now()
local before, incarnation, _, older = identity.read(KEYS[1])
local status = base.DONE
identity.keep(KEYS[1])
if before ~= client then
  if incarnation >= mine then
    redis.call('HSET', KEYS[1], 'twice', base.int(now) .. ':' .. ARGV[3]) -- Both live.
    return { base.REFUSED, now }
  end
  identity.give(KEYS[1], before, older, client, mine, ARGV[3], ARGV[4])
  status = base.WAITING
end
for i = 5, #ARGV, 2 do
  local number = tonumber(ARGV[i + 1])
  if number > 0 then
    redis.call('ZADD', KEYS[2], ARGV[i + 1], ARGV[i])
  elseif tonumber(redis.call('ZSCORE', KEYS[2], ARGV[i])) == -number then
    redis.call('ZREM', KEYS[2], ARGV[i])
  end
end
identity.keep(KEYS[2])
return { status, now }
