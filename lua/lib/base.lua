-- lib/base: the server's time, numbers that survive their way through Lua, and how long keys live.

local base = {
  -- status of a reply
  GRANTED = 1, WAITING = 2, BUSY = 3, LATE = 4, DONE = 5, REFUSED = 6,
  EXCESS = 7, MISMATCH = 8, UNSET = 9, BROKEN = 10, ACTING = 11,
  HANDED = 8, -- the flag of a reply: granted to another client by message
  -- Keys outlive the last need of them by a minute. They are prolonged when less than three quarters of
  -- that are left, so that not every script pays for it (I6).
  SPARE_US = 60000000, LEAST_US = 45000000,
  MOST_US = 75000000,    -- and cut to a minute where they would live longer than so after the last need
  DAY_US = 86400000000,  -- no token is believed to be further ahead of the clock
}

-- now reads the server's time in µs. It is read once a script: in Redis 7.0 it runs on meanwhile.
function base.now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- floor is the highest token that a client has seen, unless it is more than a day ahead of the clock: then
-- it is forged, and would use up the numbers that tokens can have.
function base.floor(seen, now)
  seen = tonumber(seen)
  return seen <= now + base.DAY_US and seen or 0
end

-- ahead is until when a token is ahead of the clock: so long the key that has it is needed, because tokens begin
-- at the clock where it is gone (I2). That is bounded, as the token is.
function base.ahead(token, now)
  return math.min(token, now + base.DAY_US)
end

-- int writes a number in full. Lua's own tostring loses digits from 1e14 on.
function base.int(n)
  return string.format('%.0f', n)
end
