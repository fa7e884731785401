-- lib/base: the server's time and numbers that survive their way through Lua.

local base = {
  -- status of a reply
  GRANTED = 1, WAITING = 2, BUSY = 3, LATE = 4, DONE = 5, REFUSED = 6,
  SPARE_MS = 60000, -- how long keys outlive the last need of them
}

-- now reads the server's time in µs. It is read once a script: in Redis 7.0 it runs on meanwhile.
function base.now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- int writes a number in full. Lua's own tostring loses digits from 1e14 on.
function base.int(n)
  return string.format('%.0f', n)
end
