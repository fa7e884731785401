-- waitqueue/client: what operators are told of a client, for as long as it says it again.
--
-- KEYS  client    hash  who
-- ARGV  who       name@host#pid
--       lasts     ms until it is forgotten
-- REPLY 1
-- RETRY safe: it says the same again

redis.call('HSET', KEYS[1], 'who', ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
