-- countdown/check: the look of one client after its tickets that wait for one latch.
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  client    who looks; not used
--       mode      hears, proven or deaf: all the same, as nothing is sent to one client
--       notafter  server µs after which the check changes nothing
--       floor     not used
--       counted   1 if subscribers can be counted
--       then for each ticket: the ticket and the generation that it has seen
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, place the count; states says of each ticket: granted, queued with the count, or
--       forgotten
-- RETRY safe: it only lets the keys live longer

-- @include lib/latch.lua
local now = base.now()
if now > tonumber(ARGV[3]) then return { base.LATE, now } end

local s = latch.read(KEYS, now)
local say = { open = 'granted', closed = 'queued ' .. base.int(s.count), forgotten = 'forgotten', unset = 'forgotten' }
local states = {}
for i = 7, #ARGV, 2 do states[#states + 1] = say[latch.of(s, tonumber(ARGV[i]))] end
latch.keep(s)
return gather.reply(s, base.DONE, s.count, gather.hearing(s, ARGV[5]), s.generation, states)
