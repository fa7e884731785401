-- barrier/ask: arrive, once a ticket, and pass if this is the last party to come.
--
-- KEYS  lock      hash  the parties, the generation, what became of those before
--       leases    zset  tickets of the present generation by server µs until which their leases last
--       arrivals  hash  of each of these tickets its index, when it came, and who it is
--       last      hash  the arrivals of the generation before
--       calls     zset  ended or repeated tickets, by server µs until which they are known
-- ARGV  ticket    client:number:kind:permits:lease:grant; lease is of the party, in ms
--       mode      not used: an ask is an arrival
--       notafter  server µs after which the ask changes nothing
--       arrival   the generation that an earlier ask of this ticket answered, or 0
--       head      not used
--       floor     not used
--       counted   not used
--       phase     not used
--       who       what operators are told of the client
--       parties   how many meet, 1 to 10000
--       action    1 if this party has an action to run when it is the last to come
--       since     server µs before which no unanswered attempt of this ticket can have run; empty if there
--                 was none
--       lifetime  ms for which the barrier outlives its last use
--       seen      the highest generation of this barrier that the client has seen, 0 or none
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       WAITING, with the index in place (parties-1 for the first to come), the generation in arrival, and
--       in until the end of the earliest of the leases; ACTING for the last to come if it has an action:
--       the others wait until barrier/open; GRANTED if all have come, with the index; BROKEN until the
--       reset; BUSY if all have come and the action runs: ask again when that generation is over; MISMATCH,
--       with the number of parties in states; REFUSED, with forgotten in states, if it is not certain
--       whether an earlier attempt has arrived, or the ticket has ended
-- RETRY safe: a ticket that has arrived gets the same answer, or what became of its generation

-- @include lib/barrier.lua
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = barrier.read(KEYS, now)
local ticket, parties = ARGV[1], tonumber(ARGV[10])
if s.generation ~= 0 and s.parties ~= parties then
  return gather.reply(s, base.MISMATCH, -1, s.arrived, 0, { base.int(s.parties) })
end
local here = redis.call('HGET', s.arrivals, ticket)
local before = not here and redis.call('HGET', s.last, ticket)
local repeated = ARGV[12] ~= ''
-- An attempt that was long under way: of a ticket that ended, or a first one that was asked again since.
local ghost = gather.known(s, barrier.gone(ticket)) or (not repeated and gather.known(s, ticket))
local complete = redis.call('HLEN', s.last) > 0
barrier.settle(s)

-- An earlier attempt has arrived.
local mine = tonumber(ARGV[4])
if here or before then mine = s.generation - (here and 0 or 1) end
if here or before or mine ~= 0 then
  local index = tonumber(string.match(here or before or '-1', '^-?%d+'))
  local outcome = barrier.of(s, mine)
  if outcome == 'granted' then return barrier.finish(s, base.GRANTED, index, mine) end
  if outcome == 'broken' then return barrier.finish(s, base.BROKEN, -1, mine) end
  if outcome == 'forgotten' or not here then
    return barrier.finish(s, base.REFUSED, -1, 0, { 'forgotten' })
  end
  gather.open(s)
  barrier.prolong(s, ticket)
  return barrier.finish(s, s.acting == ticket and base.ACTING or base.WAITING, index, mine)
end

-- The keys may have forgotten an attempt that arrived: in a generation whose outcome alone is left, or in an earlier life
-- of the keys, if this client has seen one.
local lost = ghost
if repeated then
  s.note, s.repeats = ticket, barrier.GHOST_MS
  local since, seen = tonumber(ARGV[12]), tonumber(ARGV[14] or '') or 0
  local first = s.generation ~= 0 and s.first or now
  lost = lost or since <= (complete and s.horizon or s.ended)
    or (seen ~= 0 and seen < first and since <= first)
end
if lost then return barrier.finish(s, base.REFUSED, -1, 0, { 'forgotten' }) end
if s.broken then return barrier.finish(s, base.BROKEN) end
if s.generation ~= 0 and s.arrived >= s.parties then return barrier.finish(s, base.BUSY) end

if s.generation == 0 then
  s.generation = gather.next(0, now)
  s.first, s.parties = s.generation, parties
  redis.call('HSET', s.lock, 'parties', base.int(parties), 'generation', base.int(s.generation),
    'first', base.int(s.first))
  -- What is left of an earlier life of the keys is none of this one.
  redis.call('DEL', s.leases, s.arrivals, s.last)
end
s.arrived, s.lifetime = s.arrived + 1, tonumber(ARGV[13])
local index, generation = s.parties - s.arrived, s.generation
redis.call('HSET', s.arrivals, ticket, base.int(index) .. ' ' .. base.int(now) .. ' ' .. ARGV[9])
redis.call('HSET', s.lock, 'arrived', base.int(s.arrived), 'lifetime', base.int(s.lifetime))
barrier.prolong(s, ticket)
if index > 0 then return barrier.finish(s, base.WAITING, index, generation) end
if ARGV[11] == '1' then
  redis.call('HSET', s.lock, 'acting', ticket)
  s.acting = ticket
  return barrier.finish(s, base.ACTING, 0, generation)
end
barrier.trip(s)
return barrier.finish(s, base.GRANTED, 0, generation)
