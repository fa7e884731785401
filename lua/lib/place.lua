-- lib/place: where a ticket stands in the queue of a lock.
-- @include lib/hold.lua

local place = {}

-- clients is the number of clients that wait, as far as a sample of the queue tells. It takes 40 µs where the queue is
-- long, so it is for checks, which come the more rarely the more clients there are.
function place.clients(s, size)
  if size <= 400 then return size end
  local sample = redis.call('ZRANDMEMBER', s.queue, 32)
  local seen, distinct = {}, 0
  for _, ticket in ipairs(sample) do
    local client = hold.client(ticket)
    if not seen[client] then
      seen[client] = true
      distinct = distinct + 1
    end
  end
  if distinct == #sample then return size end
  return math.min(size, 8 * distinct)
end

-- arrive gives a new arrival: the server's time, strictly increasing, less a head start.
function place.arrive(s, head_start)
  s.high = math.max(s.now, s.high + 1)
  redis.call('HSET', s.lock, 'high', base.int(s.high))
  return s.high - head_start
end

-- of is how many are ahead of a ticket, the holder among them; -1 if it is not queued.
function place.of(s, ticket)
  local rank = redis.call('ZRANK', s.queue, ticket)
  if not rank then return -1 end
  return rank + (s.owner and 1 or 0)
end

-- queue puts a ticket into the queue, and returns 1 if it was not there. An arrival that was given before counts if it is
-- earlier than the stored one: a first ask that came late may have queued the ticket too far back. Arrival plus head
-- start, nil on a first ask, is when the ticket came, perhaps by a clock ahead of this one: later tickets come after that
-- time. size is the length of the queue before.
function place.queue(s, ticket, arrival, size, head_start)
  local new = redis.call('ZADD', s.queue, head_start and 'LT' or 'NX', base.int(arrival), ticket)
  local came = head_start and believed(arrival + head_start, s.now) or 0
  if s.high <= 1 or came > s.high then -- Without high it is not looked whether somebody waits.
    s.high = math.max(1, s.high, came)
    redis.call('HSET', s.lock, 'high', base.int(s.high))
  end
  if size == 0 then s.created = true end
  if s.scan then place.recall(s, arrival) end
  return new
end

-- brought reads what a check says of a ticket: its arrival, its head start, and how many may wait, if it has a limit.
function place.brought(text)
  local arrival = tonumber(text)
  if arrival then return arrival, 0 end
  local limit, head_start
  arrival, limit, head_start = string.match(text, '^(%d+):?(%d*)@?(-?%d*)$')
  return tonumber(arrival), tonumber(head_start) or 0, limit ~= '' and limit or nil
end

-- recall lets the next pass begin at the head again, because a ticket was queued in front of the place where a pass was
-- cut.
function place.recall(s, arrival)
  if arrival and tonumber(arrival) <= tonumber(string.match(s.scan, ':([^:]*):')) then
    redis.call('HDEL', s.lock, 'scan')
    s.scan = false
  end
end

-- wait gives a ticket a place, if its client hears and is no suspect, and an arrival, if this is its first ask.
-- It returns the place, the arrival, and the size of the queue, which is given as it was before.
function place.wait(s, ticket, mode, arrival, head_start, size)
  local given = arrival ~= 0
  if not given then arrival = place.arrive(s, head_start) end
  local ahead, new = -1, 0
  if hold.suspected(s, s.caller) then
    hold.flag(s, hold.SUSPECTED)
  elseif mode == 'wait' then
    new = place.queue(s, ticket, arrival, size, given and head_start)
    if new == 1 then hold.wanted(s) end
    ahead = place.of(s, ticket)
  end
  -- What is queued already keeps the arrival that it has.
  if new == 0 then arrival = tonumber(redis.call('ZSCORE', s.queue, ticket) or arrival) end
  return ahead, arrival, size + new
end
