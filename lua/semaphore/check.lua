-- semaphore/check: the look of one client after its tickets of one lock; without tickets, after the queue.
--
-- What is neither queued nor granted is queued again with its arrival, before the queue is served (I3).
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  client    who looks
--       mode      hears: it has a subscription; proven: made since it was suspected, and an echo came, or the
--                 client looks in place of hearing; deaf: it has none, and its tickets may be granted in the reply but
--                 not stay queued (R10)
--       notafter  server µs after which the check changes nothing
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       then for each ticket, the oldest first: the ticket and its arrival, followed by :limit if it never had a
--                 place and has a bound (ask), and @head at the end if it has a head start
--       limit     after them: how many permits there are, as the client states it
--       born      and when the client was made, as an ask has it; absent where that has none
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       states says of each ticket: queued or again (it was unknown and is queued again), with its place;
--       granted, earlier (it was granted before, by message), gone, or excess with the limit; full, with how many
--       wait and the arrival of the head, if there is no room for one with a bound, which is not kept
-- RETRY safe: it asks for a state, not for a change

-- @include lib/permits.lua
-- @include lib/place.lua
local client, mode = ARGV[1], ARGV[2]
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local count = math.max(math.floor((#ARGV - 6) / 2), 0)
local stated, born = ARGV[6 + 2 * count], ARGV[7 + 2 * count]
local s = permits.read(KEYS, now, ARGV[4], ARGV[5], stated, born)
if stated and not s.new then permits.state(s, stated, born) end
local size = redis.call('ZCARD', s.queue)
permits.open(s)
-- Ahead of settle: what this shows of the client is older than what the script may find out.
expiry.answer(s, client, mode == 'proven')
if mode == 'proven' then mode = 'hears' end
s.caller = client
permits.settle(s)

local states, fresh = {}, nil
for i = 1, count do
  local ticket = ARGV[4 + 2 * i]
  local holds, token, ends, phase = permits.held(s, ticket)
  if holds then
    states[i] = phase == 'g' and 'earlier' or 'granted'
    permits.report(s, ticket, token, ends)
  elseif not s.new and tonumber(string.match(ticket, ':(%d+):%d+:%d+$')) > s.limit then
    states[i] = 'excess ' .. base.int(s.limit)
    size = size - redis.call('ZREM', s.queue, ticket)
  else
    local arrival, head_start, limit = place.brought(ARGV[5 + 2 * i])
    local new = place.queue(s, ticket, arrival, size, head_start)
    states[i] = new == 1 and 'again' or 'queued'
    size = size + new
    if limit and new == 1 then
      fresh = fresh or {}
      fresh[#fresh + 1] = { state = i, ticket = ticket, arrival = arrival, head_start = head_start, limit = limit }
    end
    if new == 1 then hold.wanted(s) end
  end
end
if hold.suspected(s, client) then
  hold.flag(s, hold.SUSPECTED)
  mode = 'deaf'
end
queue.advance(s, client)
if fresh then
  -- @include lib/room.lua
  if room.trim(s, fresh, states) then queue.advance(s, client) end -- Tickets after one of them may fit.
end

local left = {}
for i = 1, count do
  local ticket = ARGV[4 + 2 * i]
  if states[i] == 'queued' or states[i] == 'again' then
    if s.taken[ticket] then
      states[i] = 'granted'
    elseif mode == 'deaf' then
      states[i] = 'gone'
      left[#left + 1] = ticket
    end
  end
end
if #left > 0 then
  redis.call('ZREM', s.queue, unpack(left))
  queue.advance(s, client) -- Tickets after one of them may fit.
end
size = redis.call('ZCARD', s.queue)
if size == 0 then hold.forget(s) end
hold.keep(s, size)
for i = 1, count do
  if states[i] == 'queued' or states[i] == 'again' then
    states[i] = states[i] .. ' ' .. place.of(s, ARGV[4 + 2 * i])
  end
end
return permits.reply(s, base.DONE, -1, place.clients(s, size), 0, states)
