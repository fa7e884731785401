-- lib/known: whether a queue is known to be full, without a look at the tickets in it.

local known = {}

-- full is the arrival of the head of a queue that has no room for a new ticket; false if only a look at its tickets can
-- tell (room.full), and nil if there is room.
function known.full(keys, now, ticket, size, bound, counted)
  local limit, left = bound_of(bound)
  limit = tonumber(limit)
  local crowded = limit > 0 and size >= limit
  if not crowded and left == '' then return nil end
  local head = redis.call('ZRANGE', keys[2], 0, 0, 'WITHSCORES')
  local oldest = tonumber(head[2])
  if not crowded then
    local ahead = redis.call('ZCOUNT', keys[2], '-inf', string.format('%.0f', now)) + 1
    if awaits(ahead, now - oldest, size) <= tonumber(left) then return nil end
  end
  if redis.call('ZSCORE', keys[2], ticket) then return nil end
  if crowded then
    local rest, till = string.match(redis.call('HGET', keys[1], 'looked') or '', '^(%d+):(%d+)$')
    local counts = rest and tonumber(till) > now and till - now <= LOOKED_MOST_US and size - rest >= limit
    return counts and oldest or false
  end
  local client = string.match(head[1], '^[^:]*')
  if client == string.match(ticket, '^[^:]*') then return oldest end -- R5
  local counts = counted == '1' and redis.pcall('PUBSUB', 'NUMSUB', keys[1] .. ':wake:' .. client) -- R4
  return counts and (counts[2] or 0) > 0 and oldest
end
