-- waitqueue/probe: what of the protocol the server does not allow to this user, and whether it is a master. It
-- changes nothing.
--
-- KEYS  lock      hash  a name that nobody uses
--       queue     zset
--       suspects  zset
-- ARGV  channel   a wake channel of that name
-- REPLY {now, {what is not allowed, …}}
-- RETRY safe: it only reads

-- @include lib/base.lua
local missing = {}

-- Servers before 7.0 cannot be asked; there the first refusal tells.
local function need(what, ...)
  if not redis.acl_check_cmd then return end
  if not redis.acl_check_cmd(...) then missing[#missing + 1] = what end
end

need('write the keys (HSET)', 'HSET', KEYS[1], 'owner', 'x')
need('read the keys (HMGET)', 'HMGET', KEYS[1], 'owner')
need('run HGET', 'HGET', KEYS[1], 'owner')
need('run HDEL', 'HDEL', KEYS[1], 'owner')
need('run HEXISTS', 'HEXISTS', KEYS[1], 'owner')
need('run HLEN', 'HLEN', KEYS[1])
need('run DEL', 'DEL', KEYS[1])
need('run RENAME', 'RENAME', KEYS[1], KEYS[2])
need('run PEXPIRE', 'PEXPIRE', KEYS[1], '1')
need('run ZADD', 'ZADD', KEYS[2], '1', 'x')
need('run ZREM', 'ZREM', KEYS[2], 'x')
need('run ZRANGE', 'ZRANGE', KEYS[2], '0', '0')
need('run ZRANK', 'ZRANK', KEYS[2], 'x')
need('run ZCARD', 'ZCARD', KEYS[2])
need('run ZCOUNT', 'ZCOUNT', KEYS[2], '0', '0')
need('run ZREMRANGEBYRANK', 'ZREMRANGEBYRANK', KEYS[2], '0', '0')
need('run ZREMRANGEBYSCORE', 'ZREMRANGEBYSCORE', KEYS[3], '0', '0')
need('run ZSCORE', 'ZSCORE', KEYS[3], 'x')
need('run ZMSCORE', 'ZMSCORE', KEYS[3], 'x')
need('run ZRANDMEMBER', 'ZRANDMEMBER', KEYS[2], '1')
need('run PUBSUB NUMSUB', 'PUBSUB', 'NUMSUB', ARGV[1])
need('PUBLISH on the wake channels', 'PUBLISH', ARGV[1], 'x')
need('SUBSCRIBE to the wake channels', 'SUBSCRIBE', ARGV[1])

need('run TIME', 'TIME')

-- A replica refuses what could write, also where there is nothing to be written.
local write = redis.pcall('PEXPIRE', KEYS[1], '1')
if type(write) == 'table' and write.err and string.find(write.err, '^READONLY') then return redis.error_reply(write.err) end

return { #missing == 0 and base.now() or 0, missing }
