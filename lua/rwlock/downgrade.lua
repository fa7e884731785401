-- rwlock/downgrade: turn a hold for writing into one for reading, without a gap, and let the readers at the
-- head in.
--
-- KEYS  lock      hash  the limit, how many permits are held, the last token, and a field for each hold
--       queue     zset  tickets by arrival
--       suspects  zset  clients that let a lease run out, by time of the mark
--       holders   zset  tickets that hold, by the end of their leases
-- ARGV  ticket    whose hold it is
--       token     the token of the hold
--       floor     the highest token that the client has seen
--       counted   1 if subscribers can be counted
--       notafter  server µs after which it changes nothing
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is GRANTED, or REFUSED with the reason in states: expired, forced or forgotten
-- RETRY safe: a hold that is one for reading stays one

-- @include lib/permits.lua
-- @include lib/reason.lua
local now = base.now()
if now > tonumber(ARGV[5]) then return { base.LATE, now } end

local ticket = ARGV[1]
local s = permits.read(KEYS, now, ARGV[3], ARGV[4])
local size = redis.call('ZCARD', s.queue)
permits.open(s)
s.caller = hold.client(ticket)
permits.settle(s)
local holds, token, ends = permits.held(s, ticket)
local ours = holds and token == tonumber(ARGV[2])
if ours and holds > 1 then permits.lower(s, ticket) end
queue.advance(s, s.caller)
hold.keep(s, size)
if ours then return permits.granted(s, 0, token, ends) end
return permits.reply(s, base.REFUSED, -1, size, 0, { holds and 'expired' or reason.of(s, ticket) })
