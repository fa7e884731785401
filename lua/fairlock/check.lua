-- fairlock/check: one client asks what has become of its tickets of one lock; without tickets it only serves the queue.
--
-- What is neither queued nor granted is queued again with its arrival, before the queue is served (I3).
--
-- KEYS  lock      hash  who holds, until when, the last token
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
-- ARGV  client    who looks
--       mode      hears: it has a subscription; proven: made since it was suspected, and an echo came, or the
--                 client looks in place of hearing; deaf: it has none, and its tickets may be granted in the reply but
--                 not stay queued (R10)
--       notafter  server µs after which the check changes nothing
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       then for each ticket, the oldest first: the ticket and its arrival, followed by :limit if it never had a
--                 place and has a bound (ask), and @head at the end if it has a head start
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       states says of each ticket: queued or again (it was unknown and is queued again), with its place;
--       granted, or earlier (it was granted before, by a message or a reply that may be lost; this one brings the
--       grant); gone; full, with how many wait and the arrival of the head, if there is no room for one with a
--       bound, which is not kept
-- RETRY safe: it asks for a state, not for a change

-- @include lib/place.lua
-- @include lib/queue.lua
local client, mode = ARGV[1], ARGV[2]
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = hold.read(KEYS, now, ARGV[4], ARGV[5])
local size = redis.call('ZCARD', s.queue)
hold.open(s)
-- Ahead of settle: what this shows of the client is older than what the script may find out.
expiry.answer(s, client, mode == 'proven')
if mode == 'proven' then mode = 'hears' end
s.caller = client
expiry.settle(s)
if hold.suspected(s, client) then
  hold.flag(s, hold.SUSPECTED)
  mode = 'deaf'
end

local states, fresh = {}, nil
for i = 6, #ARGV, 2 do
  local ticket = ARGV[i]
  if s.owner == ticket then
    states[#states + 1] = 'earlier'
    hold.report(s)
  else
    local arrival, head_start, limit = place.brought(ARGV[i + 1])
    local new = place.queue(s, ticket, arrival, size, head_start)
    states[#states + 1] = new == 1 and 'again' or 'queued'
    size = size + new
    if limit and new == 1 then
      fresh = fresh or {}
      fresh[#fresh + 1] = { state = #states, ticket = ticket, arrival = arrival, head_start = head_start, limit = limit }
    end
    if new == 1 then hold.wanted(s) end
  end
end
queue.advance(s, client)
if fresh then
  -- @include lib/room.lua
  room.trim(s, fresh, states)
end

local granted = s.grants and s.owner
for i = 1, #states do
  local ticket = ARGV[4 + 2 * i]
  if ticket == granted then
    if states[i] ~= 'earlier' then states[i] = 'granted' end
  elseif mode == 'deaf' and (states[i] == 'queued' or states[i] == 'again') then
    redis.call('ZREM', s.queue, ticket)
    states[i] = 'gone'
  end
end
size = redis.call('ZCARD', s.queue)
if size == 0 then hold.forget(s) end
hold.keep(s, size)
for i = 1, #states do
  if states[i] == 'queued' or states[i] == 'again' then
    states[i] = states[i] .. ' ' .. place.of(s, ARGV[4 + 2 * i])
  end
end
return hold.reply(s, base.DONE, -1, place.clients(s, size), 0, states)
