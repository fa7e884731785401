-- countdown/down: count down by one, once a request, and open the latch at 0.
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
--       calls     zset  ids of requests that had their effect, by server µs until which they are known
-- ARGV  id        client:number of the request, the same when it is repeated
--       notafter  server µs after which the request changes nothing
--       repeats   ms for which the request may come again
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE, with the count that is left in place and the generation in arrival; UNSET if there
--       is no latch and this request has not counted before
-- RETRY safe: a request that has counted is known by its id, for as long as it may come again, and does not
--       count again; one that found the latch open has had no effect and may count later

-- @include lib/latch.lua
local now = base.now()
if now > tonumber(ARGV[2]) then return { base.LATE, now } end

local s = latch.read(KEYS, now)
local counted = gather.known(s, ARGV[1])
if not counted and not s.set then return gather.reply(s, base.UNSET) end

-- First what is accepted when memory is full: who counts down gives others their way.
gather.open(s)
local opens = false
if not counted and s.count > 0 then
  s.count = s.count - 1
  opens = s.count == 0
  redis.call('HSET', s.lock, 'count', base.int(s.count))
  counted = true
end
if counted then gather.note(s, ARGV[1], ARGV[3]) end
if opens then gather.tell(s, 'O ' .. base.int(s.generation)) end
return gather.reply(s, base.DONE, s.count, 0, s.generation)
