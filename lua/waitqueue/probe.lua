-- waitqueue/probe: what of the protocol the server does not allow to this user, what it does not have, and whether it
-- can keep locks. It changes nothing.
--
-- KEYS  lock      hash  a name that nobody uses
--       queue     zset
--       suspects  zset
-- ARGV  channel   a wake channel of that name
--       hears     false if the client subscribes to nothing; missing: it does
--       cluster   true if it is a node of one; missing: it is not
--       counts    false if scripts are not to count subscribers; missing: they are
-- REPLY {now, {what is not allowed, …}, 1 if scripts may not count subscribers, why no lock can be kept there and what to do,
--       which master it is: see waitqueue/origin}
-- RETRY safe: it only reads

-- @include lib/base.lua
-- @include lib/origin.lua
local missing, lacking = {}, {}

-- Servers before 7.0 cannot be asked for rights; there the first refusal tells. A command without its arguments does
-- nothing there, and shows whether there is one.
local function need(what, command, ...)
  local there, allowed = true, true
  if redis.acl_check_cmd then
    there, allowed = pcall(redis.acl_check_cmd, command, ...)
  else
    local tried = redis.pcall(command)
    there = type(tried) ~= 'table' or not tried.err or not string.find(tried.err, 'nknown')
  end
  if not there then
    lacking[#lacking + 1] = command
  elseif not allowed then
    missing[#missing + 1] = what
  end
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
if ARGV[4] ~= 'false' then need('run PUBSUB NUMSUB', 'PUBSUB', 'NUMSUB', ARGV[1]) end
need('PUBLISH on the wake channels', 'PUBLISH', ARGV[1], 'x')
if ARGV[2] ~= 'false' then need('SUBSCRIBE to the wake channels', 'SUBSCRIBE', ARGV[1]) end

need('run TIME', 'TIME')

-- What keeps holds while their slot is on its way; a service that moves none may do without.
if ARGV[3] == 'true' then
  local known, allowed = pcall(redis.acl_check_cmd, 'ASKING')
  if known and not allowed then missing[#missing + 1] = 'follow a slot that moves (ASKING)' end
end

-- A replica refuses what could write, also where there is nothing to be written.
local write = redis.pcall('PEXPIRE', KEYS[1], '1')
if type(write) == 'table' and write.err and string.find(write.err, '^READONLY') then return redis.error_reply(write.err) end

local uncounted = 0
if ARGV[4] ~= 'false' and #missing == 0 and #lacking == 0 then
  local counts = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1])
  if counts.err then uncounted = 1 end
end

-- What the server says of itself, where the user may ask for it, tells of those that keep no lock, however well they speak.
local unfit = ''
if #lacking > 0 then
  unfit = 'it has no ' .. table.concat(lacking, ', ') .. ', which scripts need: use Redis 6.2 or newer, or Valkey'
end
local known, allowed = pcall(redis.acl_check_cmd, 'INFO')
for _, section in ipairs(known and not allowed and {} or { 'default', 'crdt' }) do
  local info = redis.pcall('INFO', section)
  info = type(info) == 'string' and '\n' .. info or ''
  if string.find(info, '\nrole:active%-replica') or string.find(info, '\ncrdt_') then -- KeyDB, Redis Enterprise
    unfit = 'it is one of an active-active pair, and both grant the same lock: use a server that is the only master'
  elseif string.find(info, '\ngarnet_version:') then
    unfit = 'its scripts lock no keys unless it runs with lua-transaction-mode, which it does not tell, so two may hold one lock: '
      .. 'use Redis 6.2 or newer, or Valkey'
  end
end

return { #missing == 0 and base.now() or 0, missing, uncounted, unfit, origin.of() }
