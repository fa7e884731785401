-- lib/gather: what a latch and a barrier share: generations instead of a queue, one channel for all waiters; and the
-- tickets of a barrier that are known by their ids.
-- @include lib/base.lua

local gather = {
  -- flags of a reply
  STEPPED = 4,    -- the server's clock stepped back, and leases were cut to their length
  UNWOKEN = 16,   -- PUBLISH was refused: the waiters must poll
  UNCOUNTED = 32, -- PUBSUB NUMSUB was refused
}

local DAY_MS = 86400 * 1000    -- the longest time for which the id of a request is known
local TRIM = 128               -- ids forgotten in one script (I7)

function gather.flag(s, f)
  if s.flags % (f * 2) < f then s.flags = s.flags + f end
end

-- next is the generation after old, or the first one where that is 0: the time, so that generations rise
-- also when the keys were lost.
function gather.next(old, now)
  return old > 0 and old + 1 or now
end

-- prolong lets a key live for at least ms.
function gather.prolong(key, ms)
  redis.call('PEXPIRE', key, base.int(ms))
end

-- open makes a write that Redis accepts when memory is full, also where the key is not there; what a script
-- writes after it is accepted too.
function gather.open(s)
  gather.prolong(s.lock, math.max(s.lifetime, 1))
end

-- tell publishes to all waiters. It is the last thing that a script does.
function gather.tell(s, text)
  local sent = redis.pcall('PUBLISH', s.lock .. ':wake', text)
  if type(sent) == 'table' and sent.err then gather.flag(s, gather.UNWOKEN) end
end

-- hearing is the number of clients that wait, 0 if that cannot be known.
function gather.hearing(s, counted)
  if counted ~= '1' then return 0 end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', s.lock .. ':wake')
  if counts.err then
    gather.flag(s, gather.UNCOUNTED)
    return 0
  end
  return counts[2]
end

-- known says whether a request with that id was noted.
function gather.known(s, id)
  return redis.call('ZSCORE', s.calls, id)
end

-- note remembers the id of a request, for as many ms as it may be repeated.
function gather.note(s, id, ms)
  local over = redis.call('ZCOUNT', s.calls, '-inf', base.int(s.now))
  if over > 0 then redis.call('ZREMRANGEBYRANK', s.calls, 0, math.min(over, TRIM) - 1) end
  local ends = s.now + math.min(tonumber(ms), DAY_MS) * 1000
  redis.call('ZADD', s.calls, 'GT', base.int(ends), id)
  local newest = redis.call('ZRANGE', s.calls, -1, -1, 'WITHSCORES')
  gather.prolong(s.calls, math.ceil((newest[2] - s.now) / 1000))
end

-- reply is the answer of every script except inspect. Its token is the present generation, its arrival the generation of
-- the ticket that it is about.
function gather.reply(s, status, place, waiting, arrival, states)
  return { status, s.now, s.generation, s.ends or 0, place or -1, waiting or 0, arrival or 0,
    s.flags, 0, s.expired or 0, {}, states or {} }
end
