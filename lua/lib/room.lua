-- lib/room: whether a queue has room for a ticket that never was in it (I11).
-- @include lib/place.lua
-- @include lib/queue.lua

local room = {}

local LOOKS = 1280 -- tickets looked at in one script: the most that may wait, and some dead: below five milliseconds

-- live counts a ticket whose client lives, and says whether that is enough.
local function live(_, p, _, score)
  p.alive, p.rank, p.room, p.living = true, p.rank + 1, p.room - 1, p.living + 1
  p.oldest = p.oldest or tonumber(score)
  return p.room <= 0
end

-- look finds the first tickets whose clients live, at most as many as most says. Dead ones that it meets leave the queue,
-- except where several are silent and none lives (R6).
local function look(s, most)
  local p = { rank = 0, silent = 0, room = most, living = 0, looks = LOOKS, meet = live, dead = {} }
  queue.scan(s, p, s.caller)
  if not p.alive and p.silent >= 2 then return p end
  for i = 1, #p.dead, 1024 do
    s.skipped = s.skipped + redis.call('ZREM', s.queue, unpack(p.dead, i, math.min(i + 1023, #p.dead)))
  end
  return p
end

-- noted is the arrival of the head where an earlier look still says that as many live as may wait.
local function noted(s, limit, size)
  local dead, till, waited = look_words(redis.call('HGET', s.lock, 'looked'))
  return look_counts(dead, till, s.now, size, limit) and s.now - waited
end

-- full is the arrival of the head of a queue in which as many wait as the limit says, and nil if there is room. It looks at
-- the tickets only where it would refuse, once in a script: for the largest limit, where there are several tickets. It leaves
-- what it has found for later asks.
function room.full(s, limit, largest)
  limit = tonumber(limit)
  local size, p = redis.call('ZCARD', s.queue), s.looked
  if size < limit then return nil end
  if not p then
    local known = noted(s, limit, size)
    if known then return known end
    p = look(s, largest or limit)
    s.looked, size = p, redis.call('ZCARD', s.queue)
    if size == 0 then hold.forget(s) end
  end
  if not p.oldest or p.living < limit then return nil end
  if not p.told then
    p.told = true
    redis.call('HSET', s.lock, 'looked', base.int(size - p.living) .. ':' .. base.int(s.now + looked_for(p.rank))
      .. ':' .. base.int(math.max(s.now - p.oldest, 0)))
  end
  return math.min(p.oldest, s.now)
end

-- trim takes the tickets that a check has queued for the first time out of the queue again. It lets in the first of them,
-- as far as there is room, and says of the others in the states that there is none. It returns whether there are any
-- others.
function room.trim(s, fresh, states)
  local out, largest, any = {}, 1, false
  for _, f in ipairs(fresh) do
    if redis.call('ZREM', s.queue, f.ticket) == 1 then
      out[#out + 1], largest = f, math.max(largest, tonumber(f.limit))
    end
  end
  for _, f in ipairs(out) do
    local oldest = room.full(s, f.limit, largest)
    local size, p = redis.call('ZCARD', s.queue), s.looked
    if oldest then
      states[f.state], any = 'full ' .. size .. ' ' .. base.int(oldest), true
    else
      place.queue(s, f.ticket, f.arrival, size, f.head_start)
      if p then p.living, p.oldest = p.living + 1, math.min(p.oldest or f.arrival, f.arrival) end
    end
  end
  return any
end
