-- countdown/set: close the latch with a count, if there is none or it is open. It is a request without a ticket (lib/once).
--
-- KEYS  lock      hash  the count, the generation, how long the latch lives
-- ARGV  count     1 to 2^53-1
--       lifetime  ms for which the latch outlives its last use
-- REPLY {status, now, token, until, place, waiting, arrival, flags, skipped, expired, grants, states}
--       status is DONE if this request has set it, REFUSED if it is closed; place is the count that is left,
--       arrival the generation
-- RETRY safe by lib/once, which answers a repeated request by what was said first

-- @include lib/latch.lua
local now = base.now()
local s = latch.read(KEYS, now)
if s.count > 0 then
  latch.keep(s)
  return gather.reply(s, base.REFUSED, s.count, 0, s.generation)
end
-- Where the latch is lost it is set again, by whomever.
if s.set or s.generation == 0 then s.generation = gather.next(s.generation, now) end
s.first = s.first > 0 and s.first or s.generation
s.count, s.lifetime = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('HSET', s.lock, 'count', base.int(s.count), 'initial', base.int(s.count),
  'generation', base.int(s.generation), 'first', base.int(s.first),
  'lifetime', base.int(s.lifetime))
latch.keep(s)
return gather.reply(s, base.DONE, s.count, 0, s.generation)
