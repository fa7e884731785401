-- waitqueue/restart: for how long a server has forgotten nothing.
--
-- A server that lost its data at its start may grant what somebody holds by a lease that it has forgotten; once that
-- lease is over it may not. One that reads an append-only file at its start and finds the mark of an earlier run in
-- it has forgotten nothing since that run had. The holder runs it after a renewal, on one connection: then both
-- are of one run.
--
-- KEYS  mark      hash  the last run that was asked, and since when nothing is forgotten; it lives for a week
-- ARGV  none
-- REPLY {ms for which nothing has been forgotten, at the least}
-- RETRY safe: a second call finds the mark of the first

local WEEK_MS = '604800000'
local info = redis.call('INFO', 'server')
local run, up = string.match(info, 'run_id:(%x+)'), tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or 0)
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
-- The time is in whole seconds, and may be of a second that has just begun.
local since = now - math.max(up - 1, 0) * 1000
local m = redis.call('HMGET', KEYS[1], 'run', 'since')
if m[1] == run or m[1] and string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1', 1, true) then
  since = math.min(since, tonumber(m[2]))
end
-- Memory may be full. Without the mark only the next start is worse: it is waited out.
redis.pcall('HSET', KEYS[1], 'run', run, 'since', string.format('%.0f', since))
redis.pcall('PEXPIRE', KEYS[1], WEEK_MS)
return { now - since }
