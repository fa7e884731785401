-- lib/latch: the hash of a latch as a table, and what it means to one who waits.
-- @include lib/gather.lua

local latch = {}

-- read loads the latch. Where there is none, count and generation are 0.
function latch.read(keys, now)
  local h = redis.call('HMGET', keys[1], 'count', 'generation', 'first', 'lifetime')
  return {
    lock = keys[1], calls = keys[2], now = now, flags = 0,
    count = tonumber(h[1] or 0), generation = tonumber(h[2] or 0),
    first = tonumber(h[3] or 0), lifetime = tonumber(h[4] or 0),
  }
end

-- of says what the latch is to one who has seen a generation of it, or none: 0. It is 'open' if that
-- generation was opened, and only if this is certain: who waited for one that was lost, with the keys or by
-- removal, must not pass because somebody has set another since. That one is 'forgotten'.
function latch.of(s, seen)
  if seen ~= 0 and (seen < s.first or seen > s.generation) then return 'forgotten' end
  if s.generation == 0 then return 'unset' end
  return (s.count == 0 or (seen ~= 0 and seen < s.generation)) and 'open' or 'closed'
end

-- keep lets the latch live for its lifetime after each use (I6).
function latch.keep(s)
  if s.generation ~= 0 then gather.prolong(s.lock, s.lifetime) end
end
