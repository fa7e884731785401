-- lib/barrier: the hash of a barrier as a table, how a generation ends, and what became of earlier ones.
--
-- A generation begins when the one before ends, takes in exactly as many tickets as there are parties, and
-- ends by a trip or by being broken; a broken one lasts until the reset. Its outcome never changes. The
-- outcomes of the last 64 are kept, and the tickets of the present and the last one.
-- @include lib/gather.lua

local barrier = {
  GHOST_MS = 120000, -- how late an attempt may come: twice the longest time that one is given
}

local PAST = 64       -- outcomes kept
local SPARE_MS = 60000 -- how long the keys outlive the leases of the waiting parties

-- read loads the barrier. A key of another type ends the script here, before anything is written. Without a barrier the
-- generation is 0.
function barrier.read(keys, now)
  local h = redis.call('HMGET', keys[1], 'parties', 'generation', 'first', 'broken', 'acting', 'arrived',
    'ended', 'horizon', 'past', 'lifetime')
  if of_another(h[1]) then error(other_version(number_of(h[1]))) end
  return {
    lock = keys[1], leases = keys[2], arrivals = keys[3], last = keys[4], calls = keys[5], now = now,
    parties = tonumber(h[1] or 0), generation = tonumber(h[2] or 0), first = tonumber(h[3] or 0),
    broken = h[4], acting = h[5], arrived = tonumber(h[6] or 0),
    ended = tonumber(h[7] or 0), horizon = tonumber(h[8] or 0), past = h[9] or '',
    lifetime = tonumber(h[10] or 0),
    tickets = redis.call('HLEN', keys[3]), leased = redis.call('ZCARD', keys[2]),
    flags = 0, expired = 0,
  }
end

-- lease is the lease of a ticket, in µs.
function barrier.lease(ticket)
  return (tonumber(string.match(ticket, ':(%d+):%d+$')) or 0) * 1000
end

-- prolong lets a party's lease begin anew.
function barrier.prolong(s, ticket)
  redis.call('ZADD', s.leases, base.int(s.now + barrier.lease(ticket)), ticket)
end

-- of says what has become of a generation for a party that has arrived in it: present, granted if it has tripped, broken,
-- or forgotten. A generation of another life of the keys is forgotten.
function barrier.of(s, generation)
  local ago = s.generation - generation
  if s.generation == 0 or ago < 0 then return 'forgotten' end
  if ago == 0 then return s.broken and 'broken' or 'present' end
  local outcome = string.sub(s.past, ago, ago)
  if outcome == '' then return 'forgotten' end
  return outcome == 'T' and 'granted' or 'broken'
end

-- breaks breaks the present generation. The end of the script tells the parties that have arrived.
function barrier.breaks(s)
  redis.call('DEL', s.leases)
  redis.call('HDEL', s.lock, 'acting')
  redis.call('HSET', s.lock, 'broken', '1')
  s.broken, s.acting = '1', false
  s.message = 'B ' .. base.int(s.generation)
end

-- turn makes the next generation the present one. Only the outcome of the last but one is kept.
function barrier.turn(s, outcome)
  redis.call('DEL', s.leases)
  if redis.call('HLEN', s.arrivals) > 0 then
    redis.call('RENAME', s.arrivals, s.last)
  else
    redis.call('DEL', s.last)
  end
  redis.call('HDEL', s.lock, 'acting', 'broken')
  s.past = outcome .. string.sub(s.past, 1, PAST - 1)
  s.horizon, s.ended = s.ended, s.now
  s.generation = gather.next(s.generation, s.now)
  s.arrived, s.broken, s.acting = 0, false, false
  redis.call('HSET', s.lock, 'generation', base.int(s.generation), 'arrived', '0', 'past', s.past,
    'horizon', base.int(s.horizon), 'ended', base.int(s.ended))
end

-- trip lets everybody pass.
function barrier.trip(s)
  s.message = 'O ' .. base.int(s.generation)
  barrier.turn(s, 'T')
end

-- gone is the id under which it is noted that a ticket has ended, and may not arrive any more.
function barrier.gone(ticket)
  return 'end ' .. ticket
end

-- cut shortens the leases that end later than they can, because the server's clock stepped back.
local function cut(s)
  gather.flag(s, gather.STEPPED)
  gather.open(s)
  local all = redis.call('ZRANGE', s.leases, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    if all[i + 1] - s.now > barrier.lease(all[i]) then barrier.prolong(s, all[i]) end
  end
end

-- certain says whether no keys were lost: if some were, the number of arrived parties is unknown.
local function certain(s)
  return s.arrived == s.tickets and s.arrived == s.leased
end

-- late is the number of parties whose leases have run out.
local function late(s)
  return s.arrived > 0 and redis.call('ZCOUNT', s.leases, '-inf', base.int(s.now)) or 0
end

-- fails says whether the present generation is broken, or will be by the next request that may write.
function barrier.fails(s)
  return s.broken or s.generation ~= 0 and (not certain(s) or late(s) > 0)
end

-- settle breaks the present generation if the lease of a party has run out, or if it is not certain who has
-- arrived: then nobody passes.
function barrier.settle(s)
  if s.generation == 0 or s.broken then return end
  if not certain(s) then return barrier.breaks(s) end
  if s.arrived == 0 then return end
  local newest = redis.call('ZRANGE', s.leases, -1, -1, 'WITHSCORES')
  if newest[2] - s.now > barrier.lease(newest[1]) then cut(s) end
  s.expired = late(s)
  if s.expired > 0 then barrier.breaks(s) end
end

-- finish prolongs the keys (I6), records the request if it must be known later, tells the waiters, and answers. The until
-- of its answer is the end of the first lease, when everybody polls again.
function barrier.finish(s, status, place, arrival, states)
  if s.generation ~= 0 then
    local ms = s.lifetime
    if s.arrived > 0 and not s.broken then
      local first = redis.call('ZRANGE', s.leases, 0, 0, 'WITHSCORES')
      local newest = redis.call('ZRANGE', s.leases, -1, -1, 'WITHSCORES')
      s.ends = tonumber(first[2])
      ms = math.max(ms, math.ceil((newest[2] - s.now) / 1000) + SPARE_MS)
    end
    for _, key in ipairs({ s.lock, s.leases, s.arrivals, s.last }) do gather.prolong(key, ms) end
  end
  if s.note then gather.note(s, s.note, s.repeats) end
  if s.message then gather.tell(s, s.message) end
  return gather.reply(s, status, place, s.broken and 0 or s.arrived, arrival, states)
end
