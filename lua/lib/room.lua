-- lib/room: whether a queue has room for a ticket that never was in it (I11).
-- @include lib/place.lua
-- @include lib/queue.lua

local room = {}

local LOOKS = 1280 -- tickets looked at in one script: the most that may wait, and some dead: below five milliseconds

-- live counts a ticket whose client lives, and says whether that is enough.
local function live(_, p, _, score)
  p.alive, p.rank, p.room = true, p.rank + 1, p.room - 1
  p.oldest = p.oldest or tonumber(score)
  return p.room <= 0
end

-- look finds the first tickets whose clients live, so many at the most. The dead that it comes by leave the queue; but
-- nobody does where several are silent and none lives (R6).
local function look(s, most)
  local p = { rank = 0, silent = 0, room = most, looks = LOOKS, meet = live, dead = {} }
  queue.scan(s, p, s.caller)
  if not p.alive and p.silent >= 2 then return p end
  for i = 1, #p.dead, 1024 do
    s.skipped = s.skipped + redis.call('ZREM', s.queue, unpack(p.dead, i, math.min(i + 1023, #p.dead)))
  end
  return p
end

-- late says whether a ticket that comes at that time would wait for longer than its call has left.
local function late(s, left, at, size, oldest)
  if left == '' then return false end
  local ahead = redis.call('ZCOUNT', s.queue, '-inf', base.int(at)) + 1
  return awaits(ahead, s.now - oldest, size) > tonumber(left)
end

-- full is the arrival of the head of a queue that has no room for a ticket which comes at that time, and nil if there is
-- room. It looks at the tickets only where it would refuse, and leaves for asks to come what it has found.
function room.full(s, limit, left, at)
  limit = tonumber(limit)
  local size = redis.call('ZCARD', s.queue)
  local crowded = limit > 0 and size >= limit
  if size == 0 then return nil end
  if not crowded and not late(s, left, at, size, tonumber(redis.call('ZRANGE', s.queue, 0, 0, 'WITHSCORES')[2])) then return nil end
  local most = crowded and limit or 1
  local p = look(s, most)
  size = redis.call('ZCARD', s.queue)
  if size == 0 then hold.forget(s) end
  if not p.oldest or not (crowded and p.room <= 0) and not late(s, left, at, size, p.oldest) then return nil end
  redis.call('HSET', s.lock, 'looked', base.int(size - most + p.room) .. ':' .. base.int(s.now + looked_for(p.rank))
    .. ':' .. base.int(math.max(s.now - p.oldest, 0)))
  return p.oldest
end

-- trim takes out of the queue again what a check has queued for the first time and there is no room for, the last ones
-- first, and says so in the states. It returns whether there are any.
function room.trim(s, fresh, states)
  local any = false
  for i = #fresh, 1, -1 do
    local f = fresh[i]
    if redis.call('ZREM', s.queue, f.ticket) == 1 then
      local oldest = room.full(s, f.limit, f.left, f.arrival)
      local size = redis.call('ZCARD', s.queue)
      if oldest then
        states[f.state], any = 'full ' .. size .. ' ' .. base.int(oldest), true
      else
        place.queue(s, f.ticket, f.arrival, size, f.head_start)
      end
    end
  end
  return any
end
