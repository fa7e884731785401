-- lib/hold: the hash of a lock as a table, the lease that runs out by the server's time, the reply.
-- @include lib/base.lua

local hold = {
  -- flags of a reply
  MORE = 1,       -- the work was cut at its bound: look again at once
  SUSPECTED = 2,  -- the calling client let a grant lapse
  STEPPED = 4,    -- the server's clock stepped back, and a lease was cut to its length
  HANDED = 8,     -- granted to another client by message
  UNWOKEN = 16,   -- PUBLISH was refused: the head must look by itself
  UNCOUNTED = 32, -- PUBSUB NUMSUB was refused: nobody is skipped
}

local SUSPECT_US = 600 * 1000000  -- how long a suspect is remembered

-- read loads the lock. A key of another type ends the script here, before anything is written.
function hold.read(keys, now, floor, counted)
  local h = redis.call('HMGET', keys[1],
    'owner', 'until', 'lease', 'token', 'high', 'phase', 'mark', 'scan')
  return {
    lock = keys[1], queue = keys[2], suspects = keys[3], now = now,
    owner = h[1], ends = tonumber(h[2] or 0), lease = tonumber(h[3] or 0),
    token = tonumber(h[4] or 0), high = tonumber(h[5] or 0), phase = h[6],
    mark = tonumber(h[7] or 0), scan = h[8],
    floor = tonumber(floor), counted = counted == '1',
    flags = 0, skipped = 0, expired = 0, grants = {},
  }
end

function hold.flag(s, f)
  if s.flags % (f * 2) < f then s.flags = s.flags + f end
end

-- client is the part of a ticket that names its client.
function hold.client(ticket)
  return string.match(ticket, '^[^:]*')
end

function hold.channel(s, client)
  return s.lock .. ':wake:' .. client
end

-- suspect remembers a client that let a lease run out, and tells it, in case it lives.
local function suspect(s, ticket)
  local client = hold.client(ticket)
  redis.call('ZADD', s.suspects, base.int(s.now), client)
  redis.call('ZREMRANGEBYSCORE', s.suspects, '-inf', base.int(s.now - SUSPECT_US))
  redis.call('PEXPIRE', s.suspects, base.SPARE_MS)
  redis.pcall('PUBLISH', hold.channel(s, client), 'S ' .. ticket)
end

-- settle ends a lease that has run out. The end by server time decides, not the expiry of the key,
-- so that it is still known whose it was.
function hold.settle(s)
  if not s.owner then return end
  if s.ends - s.now > s.lease then
    s.ends = s.now + s.lease
    hold.flag(s, hold.STEPPED)
    redis.call('PEXPIRE', s.lock, math.ceil(s.lease / 1000) + base.SPARE_MS)
    redis.call('HSET', s.lock, 'until', base.int(s.ends))
  end
  if s.ends > s.now then return end
  local ticket = s.owner
  hold.free(s)
  redis.call('HSET', s.lock, 'lapsed', ticket)
  s.expired = 1
  if s.phase ~= 'final' then suspect(s, ticket) end
end

-- free takes the lock from its owner. HDEL is accepted when memory is full, and what a script writes
-- after it is too.
function hold.free(s)
  redis.call('HDEL', s.lock, 'owner')
  s.owner = false
end

-- own writes a new owner, with a token above every earlier one (I2).
function hold.own(s, ticket, lease_ms, phase, who)
  s.token = math.max(s.token, s.floor, s.now - 1) + 1
  s.lease = lease_ms * 1000
  s.ends = s.now + s.lease
  s.owner = ticket
  s.phase = phase
  local since = base.int(s.now)
  redis.call('HSET', s.lock, 'owner', ticket, 'until', base.int(s.ends), 'lease', lease_ms .. '000',
    'token', s.token == s.now and since or base.int(s.token), 'phase', phase, 'who', who, 'since', since)
end

-- prolong lets the keys outlive the lease and two of the longest looks (I6).
function hold.prolong(s, waiting)
  local ms = math.max(math.ceil((s.ends - s.now) / 1000), 2 * math.max(2000, waiting * 5)) + base.SPARE_MS
  redis.call('PEXPIRE', s.lock, ms)
  if waiting > 0 then
    redis.call('PEXPIRE', s.queue, ms)
    redis.call('PEXPIRE', s.suspects, ms)
  end
end

-- reply is the answer of every script that serves the queue. Where nobody holds, until is the end of the
-- mark behind which the lock stays free, or 0.
function hold.reply(s, status, place, waiting, arrival, states)
  return { status, s.now, s.token, s.owner and s.ends or s.mark, place or 0, waiting or 0, arrival or 0,
    s.flags, s.skipped, s.expired, s.grants, states or {} }
end
