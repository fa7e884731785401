-- lib/base: the server's time, numbers that survive their way through Lua, and how long keys live.

local base = {
  -- status of a reply
  GRANTED = 1, WAITING = 2, BUSY = 3, LATE = 4, DONE = 5, REFUSED = 6,
  EXCESS = 7, MISMATCH = 8, UNSET = 9, BROKEN = 10, ACTING = 11, FULL = 13,
  HANDED = 8, -- the flag of a reply: granted to another client by message
}

-- now reads the server's time in µs. It is read once a script: in Redis 7.0 it runs on meanwhile.
function base.now()
  local t = redis.call('TIME')
  return micros(t)
end

-- floor is the highest token that a client has seen, if it can be believed.
function base.floor(seen, now)
  seen = tonumber(seen)
  return believed(seen, now)
end

-- int writes a number in full. Lua's own tostring loses digits from 1e14 on.
function base.int(n)
  return string.format('%.0f', n)
end
