-- waitqueue/restart: for how long a server that came up without its data must not be believed.
--
-- A server that has lost its data may grant what somebody holds by a lease that it has forgotten. It has not if
-- it has run for longer than that lease, or if it reads an append-only file at its start and the lock has in it
-- the mark of an earlier run. Run it behind a renewal on one connection, by the holder: then both are of one run.
--
-- KEYS  lock      hash  who holds, until when, the last token
-- ARGV  lease     ms that a lease of this lock lasts
-- REPLY {ms to wait, 0 if there is nothing to wait for; ms that the server has run at the least}
-- RETRY safe: it asks for a state, and marks the lock with the run that it was found sound in

local info = redis.call('INFO', 'server')
local run, up = string.match(info, 'run_id:(%x+)'), tonumber(string.match(info, 'uptime_in_seconds:(%d+)'))
-- The time is in whole seconds, and may be of a second that has just begun.
local age = math.max(up - 1, 0) * 1000
local left = tonumber(ARGV[1]) - age
local mark = redis.call('HGET', KEYS[1], 'run')
if mark == run then return { 0, age } end
if left > 0 and not (mark and string.find(redis.call('INFO', 'persistence'), 'aof_enabled:1', 1, true)) then
  return { left, age }
end
-- Without the mark all is well but for the next start: then it is waited out. Memory may be full.
redis.pcall('HSET', KEYS[1], 'run', run)
return { 0, age }
