-- lib/history: the last hand-offs of a lock, where its clients want them to be kept. The scripts of such a lock have one
-- key and one argument more, the last ones: the list, and how many ends of holds it keeps. Code after
-- "@logged" in a script is in these scripts only. An ask on the fast path ends no hold, and is the same for all.
--
-- An entry is {token, since, until, how, ticket}, in one text; how is released, expired, stalled, died, forced or moved.

local past, most = table.remove(KEYS), table.remove(ARGV)

-- A list that is of another type, or may not be read, ends the script here, before anything is written.
local function expect() redis.call('LLEN', past) end

-- ended is how a hold ended whose client says so. One that nobody used was released.
local function ended(how) return how and how ~= 'unused' and how or 'released' end

-- note records that a hold has ended, after a write that is accepted when memory is full. If the server refuses this
-- write, the release goes on.
local function note(lock, ticket, token, now, how)
  if not now then
    local t = redis.call('TIME')
    now = string.format('%.0f', micros(t))
  end
  local of, since = string.match(redis.call('HGET', lock, 'since') or '', '^(%d+):(%d+)$')
  if of ~= token then since = token end
  redis.pcall('LPUSH', past, string.format('%s %s %s %s %s', token, since, now, how, ticket))
  redis.pcall('LTRIM', past, '0', string.format('%.0f', most - 1))
  redis.pcall('PEXPIRE', past, HISTORY_MS)
end
