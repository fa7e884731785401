-- lib/known: whether a queue is known to be full, without a look at the tickets in it.

local known = {}

-- full is how long the head of a queue had waited at the last look at its tickets, as text, if that look says that there
-- is no room for a new ticket. It is false if only another look can tell (room.full), and nil if there is room.
function known.full(keys, looked, now, ticket, size, limit)
  if size < limit then return nil end
  local dead, till, waited = look_words(looked)
  local counts = look_counts(dead, till, now, size, limit)
  if redis.call('ZSCORE', keys[2], ticket) then return nil end
  return counts and waited or false
end
