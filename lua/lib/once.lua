-- lib/once: a request that has no ticket has its effect once, and none after a later one in its lane has run. It runs the
-- script of the request, and notes its answer, even if it changed nothing.
--
-- Such a script has one key and one argument more, which are the last ones: the hash of notes (lib/notes), and the words
-- lane, number, notafter (server µs after which it changes nothing) and repeats (ms for which it may come again). A
-- request is LATE if a later one is noted, or if it was overtaken (waitqueue/overtake).
-- @include lib/notes.lua

local key, request = table.remove(KEYS), table.remove(ARGV)
local lane, number, notafter, repeats = string.match(request, '^(%d+) (%d+) (%d+) (%d+)$')
local now = base.now()
if now > tonumber(notafter) then return { base.LATE, now } end

local last, said = notes.of(redis.call('HGET', key, lane))
if last == tonumber(number) and said ~= '' then
  local status, token, place, arrival, flags, states = string.match(said, '^(%d+) (%d+) (-?%d+) (%d+) (%d+) ?(.*)$')
  return { tonumber(status), now, tonumber(token), 0, tonumber(place), 0, tonumber(arrival), tonumber(flags), 0, 0, {},
    states ~= '' and { states } or {} }
end
if last >= tonumber(number) then return { base.LATE, now } end

local function run()
  -- @body
end

local reply = run()
notes.write(key, reply[2], lane, string.format('%s %.0f %.0f %.0f %.0f %.0f %s', number, reply[1], reply[3], reply[5], reply[7],
  reply[8], reply[12][1] or ''), tonumber(repeats))
return reply
