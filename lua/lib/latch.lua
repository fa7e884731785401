-- lib/latch: the hash of a latch as a table, and what it means to a waiter.
-- @include lib/gather.lua

local latch = {}

-- read loads the latch. Without one, count and generation are 0. A latch that is awaited has a generation, but was never
-- set.
function latch.read(keys, now)
  local h = redis.call('HMGET', keys[1], 'count', 'generation', 'first', 'lifetime', 'initial')
  if of_another(h[1]) then error(other_version(number_of(h[1]))) end
  return {
    lock = keys[1], now = now, flags = 0,
    count = tonumber(h[1] or 0), generation = tonumber(h[2] or 0),
    first = tonumber(h[3] or 0), lifetime = tonumber(h[4] or 0), set = tonumber(h[5] or 0) > 0,
  }
end

-- await makes a latch for waiters, if there is none: its first setting has the generation that they have seen.
function latch.await(s, lifetime)
  if s.generation ~= 0 then return end
  s.generation, s.lifetime = gather.next(0, s.now), lifetime
  s.first = s.generation
  redis.call('HSET', s.lock, 'count', '0', 'initial', '0', 'generation', base.int(s.generation),
    'first', base.int(s.first), 'lifetime', base.int(s.lifetime))
end

-- of says what the latch is to a waiter that has seen a generation of it, or none: 0. It is 'open' only if that
-- generation was certainly opened. It is 'forgotten' if the generation was lost, with the keys or by removal: its waiters
-- must not pass because somebody has set another since.
function latch.of(s, seen)
  if seen ~= 0 and (seen < s.first or seen > s.generation) then return 'forgotten' end
  if s.generation == 0 or (seen == 0 and not s.set) then return 'unset' end
  return ((s.set and s.count == 0) or (seen ~= 0 and seen < s.generation)) and 'open' or 'closed'
end

-- keep lets the latch live for its lifetime after each use (I6).
function latch.keep(s)
  if s.generation ~= 0 then gather.prolong(s.lock, s.lifetime) end
end
