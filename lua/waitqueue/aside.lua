-- waitqueue/aside: from when until when the server ran this, by its own clock. Where two of them on one key were run at the
-- same time, scripts lock no keys. It changes nothing.
--
-- KEYS  lock   hash  a name that nobody uses
-- ARGV  long   for how many µs to run
-- REPLY {from, until} in µs
-- RETRY safe: it only reads

-- @include lib/base.lua
local from = base.now()
local to = from
-- Where the time of a script stands still it is over soon.
for _ = 1, 2000 do
  to = base.now()
  if to - from >= tonumber(ARGV[1]) then break end
end
return { from, to }
