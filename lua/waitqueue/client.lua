-- waitqueue/client: what operators are told of a client, for as long as it says it again; and whether the client is a copy of
-- another one, as of a process whose image was restored twice. Then it changes nothing.
--
-- KEYS  client    hash  who, link
-- ARGV  who       name@host#pid; of a client with an identity then \x1f, the identity, \x1f, and the invocation
--                 as in waitqueue/raise
--       lasts     ms until it is forgotten
--       link      the new link of the client; empty or missing: it makes none
--       then each link that the client has made under this key, the new one too
-- REPLY the link that the client has to know: the new one, or one of another client with the same identity
-- RETRY safe: the new link is one of its own then

local link = ARGV[3] or ''
if link == '' then
  redis.call('HSET', KEYS[1], 'who', ARGV[1])
else
  local found = redis.call('HGET', KEYS[1], 'link')
  local own = not found
  for i = 4, #ARGV do own = own or ARGV[i] == found end
  if not own then return found end
  redis.call('HSET', KEYS[1], 'who', ARGV[1], 'link', link)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return link
