-- waitqueue/graves: at which names a dead client is still to be buried.
--
-- KEYS  identity  hash  the present client, its incarnation, and those before that are not buried yet
--       names     zset  the names that the dead client may have something of, by number
-- ARGV  client    who is dead
--       then each name at which it has been buried
-- REPLY {each name and its number, of some hundreds of names at the most; without any the client has been buried everywhere,
--       and is forgotten}
-- RETRY safe: it says again what is left

-- @include lib/identity.lua
identity.keep(KEYS[1])
for i = 2, #ARGV do redis.call('ZREM', KEYS[2], ARGV[i]) end
local found = redis.call('ZRANGE', KEYS[2], 0, 255, 'WITHSCORES')
if #found == 0 then
  local _, _, _, older = identity.read(KEYS[1])
  identity.bury(KEYS[1], older, ARGV[1])
end
return found
