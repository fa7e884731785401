-- waitqueue/overtake: requests without a ticket that their client has given up have no effect any more.
--
-- KEYS  requests  hash  what was said to the requests of one client about one name that have no ticket (lib/notes)
-- ARGV  for each request: its lane and its number
-- REPLY {status, now}
--       status is DONE
-- RETRY safe: a request that was overtaken stays so

-- @include lib/notes.lua
local now = base.now()
for i = 1, #ARGV, 2 do
  if notes.of(redis.call('HGET', KEYS[1], ARGV[i])) < tonumber(ARGV[i + 1]) then
    notes.write(KEYS[1], now, ARGV[i], ARGV[i + 1], 120000) -- Twice as long as any request may take.
  end
end
return { base.DONE, now }
