-- fairlock/check: the look of one client after its tickets of one lock; without tickets, after the queue.
--
-- What is neither queued nor granted is queued again with its arrival, before the queue is served (I3).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  client    who looks
--       mode      hears: it has a subscription; proven: made since it was suspected, and an echo came; deaf:
--                 it has none, and its tickets may be granted in the reply but not stay queued (R10)
--       notafter  server µs after which the check changes nothing
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       then for each ticket, the oldest first: the ticket and its arrival
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       place is that of the first ticket; states says of each ticket: queued, again (it was unknown and
--       is queued again), granted, missed (it was granted before) or gone
-- RETRY safe: it asks for a state, not for a change

-- @include lib/place.lua
-- @include lib/queue.lua
local client, mode = ARGV[1], ARGV[2]
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = hold.read(KEYS, now, ARGV[4], ARGV[5])
local size = redis.call('ZCARD', s.queue)
-- PEXPIRE first: it is accepted when memory is full, and so is what a script writes after it.
hold.prolong(s, size)
hold.settle(s)
if mode == 'proven' then
  redis.call('ZREM', s.suspects, client)
elseif redis.call('ZSCORE', s.suspects, client) then
  hold.flag(s, hold.SUSPECTED)
  mode = 'deaf'
end

local states, again = {}, 0
for i = 6, #ARGV, 2 do
  local ticket, arrival = ARGV[i], ARGV[i + 1]
  if s.owner == ticket then
    states[#states + 1] = 'missed'
    s.grants = { ticket, s.token, s.ends }
  else
    local new = redis.call('ZADD', s.queue, 'NX', arrival, ticket)
    states[#states + 1] = new == 1 and 'again' or 'queued'
    again = again + new
    place.recall(s, tonumber(arrival))
  end
end
queue.advance(s, client)

local granted = s.grants[1]
for i = 1, #states do
  local ticket = ARGV[4 + 2 * i]
  if ticket == granted then
    if states[i] ~= 'missed' then states[i] = 'granted' end
  elseif mode == 'deaf' then
    redis.call('ZREM', s.queue, ticket)
    states[i] = 'gone'
  end
end
size = redis.call('ZCARD', s.queue)
if again > 0 then hold.prolong(s, size) end
local ahead = states[1] and place.of(s, ARGV[6]) or -1
return hold.reply(s, base.DONE, ahead, place.clients(s, size), 0, states)
