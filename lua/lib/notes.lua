-- lib/notes: what was answered to the requests of one client about one name that have no ticket.
--
-- The hash has a field for each of the client's lanes, in which its requests go one after the other: the number of the
-- last one, which is higher than all before, and its answer. A client that uses one lane has one note, however many
-- requests it sends.
-- @include lib/base.lua

local notes = {}

-- of is the number of the last request of a lane that is noted, 0 if there is none, and its answer.
function notes.of(note)
  local number, said = string.match(note or '', '^(%d+) ?(.*)$')
  return tonumber(number or 0), said
end

-- write records a lane's note, and keeps all notes for at least ms, a day at the most. Its first write is one that the
-- server accepts when memory is full.
function notes.write(key, now, lane, note, ms)
  local span = math.max((redis.call('HGET', key, 'until') or now) - now, ms * 1000)
  span = math.min(span, DAY_US)
  local left = base.int(math.ceil(span / 1000))
  redis.call('PEXPIRE', key, left)
  redis.call('HSET', key, lane, note, 'until', base.int(now + span))
  redis.call('PEXPIRE', key, left)
end
