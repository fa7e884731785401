-- lib/known: whether a queue is known to be full, without a look at the tickets in it.

local known = {}

-- full is for how long the head of a queue had waited when its tickets were last looked at, as text, where that says that
-- there is no room for a new ticket; false if only another look can tell (room.full), and nil if there is room.
function known.full(keys, looked, now, ticket, size, limit, left)
  local crowded = limit > 0 and size >= limit
  if not crowded and left == '' then return nil end
  local dead, till, waited = look_words(looked)
  local counts = look_counts(dead, till, now, size, crowded and limit or 1)
  if not crowded and not (counts and awaits(size + 1, waited, size) > tonumber(left)) then
    counts = false
    local head = redis.call('ZRANGE', keys[2], 0, 0, 'WITHSCORES')
    local ahead = redis.call('ZCOUNT', keys[2], '-inf', string.format('%.0f', now)) + 1
    if awaits(ahead, now - head[2], size) <= tonumber(left) then return nil end
  end
  if redis.call('ZSCORE', keys[2], ticket) then return nil end
  return counts and waited or false
end
