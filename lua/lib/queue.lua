-- lib/queue: the one way to serve the queue of a lock.
-- @include lib/expiry.lua

local queue = {}

local SCAN = 512   -- heads looked at in one script: about a millisecond
local BATCH = 128  -- heads looked at in one call
local POPS = 2048  -- tickets removed in one script: about a millisecond
local MARK_MS = 10000 -- how long nobody is dropped at the most
local GRANTS = 256 -- tickets granted in one script: about five milliseconds
local STALE_US = 60 * 1000000 -- a mark older than this is from a queue that has emptied

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
    if marks[i] and tonumber(marks[i]) <= s.now then verdict[client] = 'suspect' else channels[#channels + 1] = hold.channel(s, client) end
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

-- remember stores how far a pass came before it was cut at its bound: the number of silent clients, the arrival up to
-- which nobody was alive, and one of the silent clients, not to be counted twice.
local function remember(s, p)
  s.scan = p.silent .. ':' .. p.last .. ':' .. (p.one or '')
  redis.call('HSET', s.lock, 'scan', s.scan)
  hold.flag(s, hold.MORE)
end

-- parse reads the text of a head, or returns nil where somebody else wrote it.
local function parse(ticket, score)
  local client, kind, permits, lease, first = string.match(ticket, '^([^:]*):%d+:(%a):(%d+):(%d+):(%d+)$')
  if not client then return nil end
  return { ticket = ticket, score = score, client = client, kind = kind, permits = tonumber(permits),
    lease_ms = math.min(tonumber(lease), tonumber(first)) }
end

-- grant makes the head the owner for its grant lease, and tells its client: in the reply if that is the
-- caller (R5), else by message. If the message is refused the grant is undone.
local function grant(s, heads, caller)
  local head = heads[1]
  local now = hold.own(s, head.ticket, head.lease_ms, 'granted')
  if head.client == caller then
    hold.report(s)
    return
  end
  local sent = redis.pcall('PUBLISH', hold.channel(s, head.client),
    'G ' .. grant_words(head.ticket, now, base.int(s.token - s.now), head.lease_ms) .. grant_tail(s.told, s.note))
  if type(sent) == 'table' and sent.err then
    hold.free(s, 'unused')
    hold.clear(s)
    redis.call('ZADD', s.queue, head.score, head.ticket)
    s.created = true
    hold.flag(s, hold.UNWOKEN)
  else
    hold.flag(s, base.HANDED)
  end
end

-- resume begins a pass: at the head, or where the last one was cut at its bound.
local function resume(s, room)
  local p = { room = room, rank = 0, gone = 0, strays = 0, silent = 0, last = '-inf', grants = {}, excess = {} }
  if s.scan then
    p.silent, p.last, p.one = string.match(s.scan, '^(%d+):([^:]*):(.*)$')
    p.silent, p.rank = tonumber(p.silent), redis.call('ZCOUNT', s.queue, '-inf', p.last)
    p.counted = p.one
  end
  return p
end

-- meet decides on a head that is alive, and says whether the pass ends with it. A lock has one permit.
local function meet(s, p, ticket, score)
  p.alive, p.gone = true, p.rank
  local head, most = parse(ticket, score), s.limit or 1
  local permits = head and s.limit and head.permits or 1
  if permits <= most and permits > p.room then return true end
  p.rank, p.gone = p.rank + 1, p.rank + 1
  if not head then
    p.strays = 1
    hold.flag(s, hold.MORE)
    return true
  elseif permits > most then
    p.excess[#p.excess + 1] = head
  else
    p.grants[#p.grants + 1] = head
    p.room = p.room - permits
  end
  if p.room <= 0 then return true end
  if #p.grants + #p.excess < GRANTS then return false end
  hold.flag(s, hold.MORE)
  return true
end

-- scan looks at the heads as long as they are dead, or fit. What it finds is in the pass: rank is how many it
-- looked at, gone how many of them leave the queue, silent the number of clients that nobody hears for and one
-- of them, last the arrival up to which nobody was alive. It returns why it ended: it 'met' a head that ends
-- it, at the 'end' of the queue, 'cut' at its bound, or 'far', with more dead ahead of a head than one script
-- may remove.
function queue.scan(s, p, caller)
  local verdict, limit, size = {}, p.rank + (p.looks or SCAN), 1
  while p.rank < limit do
    local batch = redis.call('ZRANGE', s.queue, p.rank, p.rank + size - 1, 'WITHSCORES')
    if #batch == 0 then return 'end' end
    judge(s, caller, batch, verdict)
    for i = 1, #batch, 2 do
      local client = hold.client(batch[i])
      if verdict[client] == 'alive' then
        if p.rank > POPS and not p.alive then return 'far' end
        if client ~= caller then p.heard = true end
        if (p.meet or meet)(s, p, batch[i], batch[i + 1]) then return 'met' end
      else
        if p.dead then p.dead[#p.dead + 1] = batch[i] end
        if verdict[client] == 'silent' then
          if client ~= p.counted then p.silent, p.one = p.silent + 1, client end
          verdict[client] = 'counted'
        end
        p.rank = p.rank + 1
      end
      p.last = batch[i + 1]
    end
    size = p.alive and math.min(BATCH, p.room + 1) or BATCH
  end
  return 'cut'
end

-- spare sets the mark until which the lock stays free and nobody is dropped: for the grant lease of the first ticket, at
-- most MARK_MS. It says whether the mark is still in force (R6).
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

-- serve removes the tickets that a pass is done with, and grants.
local function serve(s, p, caller)
  if p.gone > 0 then
    redis.call('ZREMRANGEBYRANK', s.queue, 0, p.gone - 1)
    s.skipped = s.skipped + p.gone - #p.grants - #p.excess - p.strays
  end
  hold.forget(s)
  if #p.grants > 0 then (s.grant or grant)(s, p.grants, caller) end
  for _, head in ipairs(p.excess) do
    if head.client ~= caller then
      redis.pcall('PUBLISH', hold.channel(s, head.client), 'X ' .. head.ticket .. ' ' .. base.int(s.limit))
    end
  end
end

-- advance serves the queue while something is free (R3): heads that are suspects or silent are dropped, those
-- that are alive are granted while they fit, and told where they ask for more than there is. Where two or more
-- clients are silent and none is alive, nobody is dropped for one grant lease. Where only the caller is known
-- to be alive, the silent ones after it are left to the next pass. The keys must be kept after it.
function queue.advance(s, caller)
  local room = s.limit and s.limit - s.used or s.owner and 0 or 1
  if room <= 0 then return end
  local p = resume(s, room)
  local why = queue.scan(s, p, caller)
  if #p.grants == 0 then hold.clear(s) end
  if not p.alive then
    if why == 'cut' then return remember(s, p) end
    if why == 'end' and p.silent >= 2 and spare(s) then return end
    if not drop(s, p.rank) then return remember(s, p) end
    return hold.forget(s)
  end
  if why == 'cut' then hold.flag(s, hold.MORE) end
  if why ~= 'met' and (p.heard or p.silent < 2) then p.gone = p.rank end
  serve(s, p, caller)
end
