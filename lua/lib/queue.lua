-- lib/queue: the one way to serve the queue of a lock.
-- @include lib/expiry.lua

local queue = {}

local SCAN = 512   -- heads looked at in one script: about a millisecond
local BATCH = 128  -- heads looked at in one call
local POPS = 2048  -- tickets removed in one script: about a millisecond
local MARK_MS = 10000 -- how long nobody is dropped at the most
local STALE_US = 60 * 1000000 -- a mark older than this was left behind by a queue that emptied

-- judge tells of each client in a batch of heads whether it can be granted: 'alive', 'silent' (nobody
-- subscribes to its channel, R4) or 'suspect'. The calling client is alive by definition (R5).
local function judge(s, caller, batch, verdict)
  local names, channels = {}, {}
  for i = 1, #batch, 2 do
    local client = hold.client(batch[i])
    if client == caller then
      verdict[client] = 'alive'
    elseif not verdict[client] then
      verdict[client] = 'asked'
      names[#names + 1] = client
    end
  end
  if #names == 0 then return end
  local marks = s.marked and redis.call('ZMSCORE', s.suspects, unpack(names)) or {}
  for i, client in ipairs(names) do
    if marks[i] then verdict[client] = 'suspect' else channels[#channels + 1] = hold.channel(s, client) end
  end
  if #channels == 0 then return end
  local counts = s.counted and redis.pcall('PUBSUB', 'NUMSUB', unpack(channels)) or {}
  if counts.err then
    hold.flag(s, hold.UNCOUNTED)
    counts = {}
  end
  local k = 0
  for _, client in ipairs(names) do
    if verdict[client] == 'asked' then
      k = k + 2
      verdict[client] = (counts[k] == nil or counts[k] > 0) and 'alive' or 'silent'
    end
  end
end

-- drop removes the first n tickets, at most as many as one script may, and says whether all are gone.
local function drop(s, n)
  local now = math.min(n, POPS)
  if now > 0 then
    redis.call('ZREMRANGEBYRANK', s.queue, 0, now - 1)
    s.skipped = s.skipped + now
  end
  return now == n
end

-- remember keeps how far a pass came that was cut at its bound: the number of silent clients, the arrival
-- up to which nobody was alive, and one of the silent clients, not to be counted twice.
local function remember(s, silent, score, one)
  s.scan = silent .. ':' .. score .. ':' .. (one or '')
  redis.call('HSET', s.lock, 'scan', s.scan)
  hold.flag(s, hold.MORE)
end

-- grant makes the head the owner for its grant lease, and tells its client: in the reply if that is the
-- caller (R5), else by message. If the message is refused the grant is undone.
local function grant(s, ticket, score, caller)
  local client, lease, first = string.match(ticket, '^([^:]*):%d+:%a:%d+:(%d+):(%d+)$')
  redis.call('ZREM', s.queue, ticket)
  if not client then -- Not a ticket: somebody else wrote it.
    hold.clear(s)
    return hold.flag(s, hold.MORE)
  end
  local token, now, ends = hold.own(s, ticket, math.min(tonumber(lease), tonumber(first)), 'granted', '')
  if client == caller then
    s.grants = { ticket, s.token, s.ends }
    return
  end
  local sent = redis.pcall('PUBLISH', hold.channel(s, client),
    'G ' .. ticket .. ' ' .. token .. ' ' .. now .. ' ' .. ends)
  if type(sent) == 'table' and sent.err then
    hold.free(s)
    hold.clear(s)
    redis.call('ZADD', s.queue, score, ticket)
    s.created = true
    hold.flag(s, hold.UNWOKEN)
  else
    hold.flag(s, base.HANDED)
  end
end

-- scan looks at the heads until one is alive. It returns how many are before it, and of the pass: the
-- number of silent clients and one of them, the arrival up to which nobody was alive, the live head with
-- its arrival, and whether the pass was cut at its bound.
local function scan(s, caller)
  local rank, silent, last, one, counted = 0, 0, '-inf', nil, nil
  if s.scan then
    silent, last, one = string.match(s.scan, '^(%d+):([^:]*):(.*)$')
    silent, rank = tonumber(silent), redis.call('ZCOUNT', s.queue, '-inf', last)
    counted = one
  end
  local verdict, limit, size = {}, rank + SCAN, 1
  while rank < limit do
    local batch = redis.call('ZRANGE', s.queue, rank, rank + size - 1, 'WITHSCORES')
    if #batch == 0 then return rank, silent, one, last end
    judge(s, caller, batch, verdict)
    for i = 1, #batch, 2 do
      local client = hold.client(batch[i])
      if verdict[client] == 'alive' then return rank, silent, one, last, batch[i], batch[i + 1] end
      if verdict[client] == 'silent' then
        if client ~= counted then silent, one = silent + 1, client end
        verdict[client] = 'counted'
      end
      rank, last = rank + 1, batch[i + 1]
    end
    size = BATCH
  end
  return rank, silent, one, last, nil, nil, true
end

-- spare sets the mark behind which the lock stays free and nobody is dropped, for the grant lease of the
-- first ticket, at most MARK_MS, and says whether it is still in force (R6).
local function spare(s)
  local first = redis.call('ZRANGE', s.queue, 0, 0)[1]
  if not first then return false end
  local lasts = math.min(tonumber(string.match(first, ':(%d+)$') or 0), MARK_MS) * 1000
  -- A mark that ends later than it can was set before the server's clock stepped back.
  if s.now - s.mark > STALE_US or s.mark - s.now > lasts then
    s.mark = s.now + lasts
    redis.call('HSET', s.lock, 'mark', base.int(s.mark))
  end
  return s.now < s.mark
end

-- advance serves the queue of a lock that is free (R3): heads that are suspects or silent are dropped,
-- the first that is alive is granted. Where two or more clients are silent and none is alive, nobody is
-- dropped for one grant lease. The keys must be kept after it.
function queue.advance(s, caller)
  if s.owner then return end
  local rank, silent, one, last, head, score, cut = scan(s, caller)
  if not head then hold.clear(s) end
  if cut then return remember(s, silent, last, one) end
  if not head and silent >= 2 and spare(s) then return end
  if not drop(s, rank) then
    hold.clear(s)
    return remember(s, silent, last, one)
  end
  hold.forget(s)
  if head then grant(s, head, score, caller) end
end
