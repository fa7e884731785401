-- countdown/inspect: the count, and how many clients wait. It changes nothing.
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  most      not used
-- REPLY {now, token, limit, used, holders, waiting, {ticket, arrival, …}, {suspect, …}, state}
--       token is the generation, limit the count that was set, used the one that is left; nobody holds, no
--       tickets are kept; state is unset, closed or open
-- RETRY safe: it only reads

-- @include lib/latch.lua
local s = latch.read(KEYS, base.now())
local initial = redis.call('HGET', s.lock, 'initial') or '0'
return { s.now, base.int(s.generation), initial, base.int(s.count), {}, gather.hearing(s, '1'), {}, {},
  latch.of(s, 0) }
