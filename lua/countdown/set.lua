-- countdown/set: close the latch with a count, if there is none or it is open.
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
--       calls     zset  ids of requests that had their effect, by server µs until which they are known
-- ARGV  id        client:number of the request, the same when it is repeated
--       count     1 to 2^53-1
--       lifetime  ms for which the latch outlives its last use
--       notafter  server µs after which the request changes nothing
--       repeats   ms for which the request may come again
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE if this request has set it, now or before, REFUSED if it is closed; place is the
--       count that is left, arrival the generation
-- RETRY safe: a request that had its effect is known by its id, and has none again

-- @include lib/latch.lua
local now = base.now()
if now > tonumber(ARGV[4]) then return { base.LATE, now } end

local s = latch.read(KEYS, now)
-- Where the latch is lost it is set again, by whomever.
local done = gather.known(s, ARGV[1]) -- Also where it was removed since.
if not done and s.count > 0 then
  latch.keep(s)
  return gather.reply(s, base.REFUSED, s.count, 0, s.generation)
end
if done then
  if s.set then latch.keep(s) end
else
  if s.set or s.generation == 0 then s.generation = gather.next(s.generation, now) end
  s.first = s.first > 0 and s.first or s.generation
  s.count, s.lifetime = tonumber(ARGV[2]), tonumber(ARGV[3])
  redis.call('HSET', s.lock, 'count', base.int(s.count), 'initial', base.int(s.count),
    'generation', base.int(s.generation), 'first', base.int(s.first),
    'lifetime', base.int(s.lifetime))
  latch.keep(s)
end
gather.note(s, ARGV[1], ARGV[5])
return gather.reply(s, base.DONE, s.count, 0, s.generation)
