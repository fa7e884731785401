-- lib/permits: a lock that many hold at a time: how many permits it has, who holds them, and until when.
--
-- The hash has a field for each hold, named by its ticket: "permits:token:lease:phase:since:who", with the
-- lease in µs and a letter for the phase: g granted by message, r granted in a reply to another request of its
-- client, h held, f final. Who begins with "~least~" where the permits are to stay taken for that many ms from the grant. The holders are a sorted set of their tickets by the end of the lease. It begins
-- with a guard, so that it never is empty; where the guard is missing the key was lost, and with it all holds.
-- @include lib/queue.lua

local permits = {}

local LAPSES = 128 -- leases that are ended in one script: about a millisecond
local FIRST = 64 -- holds that are looked at for one that its client may not know of
local TOLD = 100 -- grants in one message: it stays below 16,384 bytes, from which on Valkey 9.0 to 9.1.1 may tear it
local RECORD = '^(%d+):(%d+):(%d+):(%a):(%d+):(.*)$'

-- read loads the lock. A key of another type ends the script here, before anything is written. If there is no lock,
-- stated and born are the caller's, if the script makes one.
function permits.read(keys, now, floor, counted, stated, born)
  local h = redis.call('HMGET', keys[1], 'limit', 'stated', 'used', 'token', 'high', 'mark', 'scan', 'marked',
    'kept', 'group', 'wants', 'born', 'rests', 'previous')
  if of_another(h[1]) then error(other_version(number_of(h[1]))) end
  local of, how = string.match(h[14] or '', '^(%d+):(%a+:%d+)$')
  local guard = redis.call('ZRANGE', keys[4], 0, 0)[1]
  local left = redis.call('ZCARD', keys[2]) > 0 and not h[1] and 1 -- The queue has outlived the hash.
  redis.call('ZCARD', keys[3])
  return {
    lock = keys[1], queue = keys[2], suspects = keys[3], holders = keys[4], now = now, grant = permits.grant,
    new = not h[1], lost = guard ~= GUARD, limit = tonumber(h[1] or stated or 0),
    stated = tonumber(h[2] or not h[1] and stated or nil), -- nil: nobody has since it was resized
    born = tonumber(h[12] or not h[1] and born or nil), -- nil: the limit cannot change
    used = tonumber(h[3] or 0), owner = tonumber(h[3] or 0) > 0, ends = 0,
    token = tonumber(h[4] or 0), high = tonumber(h[5] or left or 0), mark = tonumber(h[6] or 0), scan = h[7],
    marked = h[8], kept = tonumber(h[9] or 0), group = tonumber(h[10] or 0),
    wants = h[11], rests = tonumber(h[13] or 0), -- Until when permits may stay taken whose hold is over.
    floor = base.floor(floor, now), counted = counted == '1', created = false,
    lives = 0, remains = 0,
    flags = 0, skipped = 0, expired = 0, grants = {}, taken = {},
    -- How the last write hold ended, if it was not released: for the next one, or told to the one with a token.
    before = of == '0' and how, told = of ~= '0' and how, of = of,
  }
end

-- writes says whether a hold is exclusive: of a writer that has not become a reader.
function permits.writes(ticket, n)
  return tonumber(n) > 1 and string.find(ticket, ':w:', 1, true)
end

-- recall notes how the last write hold ended. The mark keeps ends off the fast path until the next one is told: those of readers,
-- who may hold meanwhile. It comes after a write that is accepted when memory is full.
function permits.recall(s, how)
  s.before, s.told, s.marked = how, false, '1'
  redis.call('HSET', s.lock, 'previous', '0:' .. how, 'marked', '1')
end

-- finish notes that a write hold ends, and how, as hold.free has it.
function permits.finish(s, ticket, n, token, how)
  if not how or not permits.writes(ticket, n) then return end
  token = base.int(token)
  if how ~= 'unused' then
    permits.recall(s, how .. ':' .. token)
  elseif s.told and s.of == token then
    permits.recall(s, s.told)
  end
end

-- told is how the hold before one with a token ended, for a reply or a message.
local function told(s, token)
  return s.told and s.of == base.int(token) and s.told
end

-- state takes in the number that a client states, with the time at which it was made. It returns whether the client may go on,
-- and whether it states another number than the newest client before. The number of the newest client counts, from its first
-- request on; older ones go by it. A client that tells no time has a number that cannot change: it may go on only if it states
-- the one that counts. settle writes down what has changed.
function permits.state(s, stated, born)
  stated = tonumber(stated)
  local differs = s.stated and s.stated ~= stated
  if not born and s.stated then return not differs end
  born = born and made_at(tonumber(born), s.now)
  if not born or born > made_at(s.born or 0, s.now) then
    if not born or differs then s.limit = stated end
    s.stated, s.born, s.restated = stated, born, true
  end
  return true, differs
end

-- parse reads the record of a hold: permits, token, lease, phase, since, who.
function permits.parse(record)
  local n, token, lease, phase, since, who = string.match(record, RECORD)
  return tonumber(n), tonumber(token), tonumber(lease), phase, since, who
end

-- use changes the number of permits that are held.
local function use(s, n)
  s.used = n
  s.owner = n > 0
end

-- counts are the fields with the limit, what was stated, when, and how many permits are held.
local function counts(s)
  local fields = { 'limit', base.int(s.limit), 'used', base.int(s.used) }
  for _, field in ipairs({ 'stated', 'born' }) do
    if s[field] then
      fields[#fields + 1] = field
      fields[#fields + 1] = base.int(s[field])
    end
  end
  return fields
end

-- forget_holds begins anew where a key was lost. DEL is accepted when memory is full.
local function forget_holds(s)
  redis.call('DEL', s.lock, s.holders)
  use(s, 0)
  s.group, s.wants, s.rests = 0, false, 0
  local ms = base.int(math.max(s.kept - s.now, SPARE_US) / 1000)
  local fields = counts(s)
  local function put(field, value)
    if value then
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  put('token', s.token > 0 and base.int(s.token))
  put('high', s.high > 0 and base.int(s.high))
  put('mark', s.mark > 0 and base.int(s.mark))
  put('kept', s.kept > 0 and base.int(s.kept))
  put('scan', s.scan)
  if s.before or s.limit == 1073741824 then -- Of readers and writers: a write hold may have been lost.
    s.marked = '1'
    s.before, s.told = s.before or 'unknown:0', false
    put('previous', '0:' .. s.before)
  end
  put('marked', s.marked)
  redis.call('HSET', s.lock, unpack(fields))
  redis.call('ZADD', s.holders, 0, GUARD)
  redis.call('PEXPIRE', s.lock, ms)
  redis.call('PEXPIRE', s.holders, ms)
end

-- make writes down the limit of a lock that was never used, or was lost with its key. That comes first: HSET is
-- refused when memory is full, so that the first use of a lock then leaves nothing.
local function make(s)
  if s.limit > 0 then redis.call('HSET', s.lock, unpack(counts(s))) end
  if s.limit > 0 and s.high > 0 then redis.call('HSET', s.lock, 'high', base.int(s.high)) end
  redis.call('DEL', s.holders)
  if s.limit == 0 then return end
  redis.call('ZADD', s.holders, 0, GUARD)
  s.new, s.created = false, true
end

-- rest gives the permits of an ended hold to a ticket that no client has, until their time is over, and says whether they
-- stay taken. The phase says how the hold ended: f if it was released, x if its lease ran out. The caller takes out the
-- hold itself.
local function rest(s, ticket, record, phase)
  local n, token, _, _, since, who = permits.parse(record)
  local least, name = string.match(who or '', '^~(%d+)~(.*)$')
  local ends = least and math.min(since, s.now) + least * 1000 or 0
  if ends <= s.now then return false end
  local rests = permits.resting(ticket)
  if redis.call('HEXISTS', s.lock, rests) == 1 then return false end -- Of an earlier hold of the same ticket.
  redis.call('HSET', s.lock, rests, base.int(n) .. ':' .. base.int(token) .. ':' .. base.int(least * 1000) .. ':' .. phase .. ':' .. since .. ':' .. name)
  redis.call('ZADD', s.holders, base.int(ends), rests)
  return true
end

-- resting is the ticket that keeps permits taken after the hold of another ticket.
function permits.resting(ticket)
  return hold.resting(ticket) .. string.match(ticket, ':(%d+):%d+:%d+$') .. ':0:0'
end

-- lapse ends holds whose leases have run out. Their clients become suspects, except those that were not to renew.
function permits.lapse(s, tickets)
  local records = redis.call('HMGET', s.lock, unpack(tickets))
  redis.call('ZREM', s.holders, unpack(tickets))
  redis.call('HDEL', s.lock, unpack(tickets))
  local used, told, unclaimed, ended, writer = s.used, {}, false, nil, nil
  for i, record in ipairs(records) do
    local n, token, _, phase, _, who = permits.parse(record or '0:0:0:f:0:')
    if permits.writes(tickets[i], n) then writer = { tickets[i], n, token } end
    if string.byte(who) ~= 126 or not rest(s, tickets[i], record, 'x') then used = used - n end
    local rested = string.find(tickets[i], ':z:', 1, true)
    if not rested then ended, s.expired = tickets[i], s.expired + 1 end
    if rested or phase == 'f' then records[i] = false end
    if phase == 'g' or phase == 'r' then unclaimed = true end
  end
  use(s, used)
  redis.call('HSET', s.lock, 'used', base.int(used))
  if writer then permits.finish(s, writer[1], writer[2], writer[3], 'expired') end
  for i, ticket in ipairs(tickets) do
    local client = hold.client(ticket)
    if records[i] and not told[client] then
      told[client] = true
      expiry.suspect(s, ticket)
    end
  end
  if ended then redis.call('HSET', s.lock, 'lapsed', ended) end
  if unclaimed then expiry.call(s) end
end

-- cap cuts a lease that ends later than it can because the server's clock stepped back, and returns its end.
local function cap(s, ticket, record, ends)
  local _, _, lease = permits.parse(record or '')
  if not lease or ends - s.now <= lease then return ends end
  hold.flag(s, hold.STEPPED)
  redis.call('ZADD', s.holders, base.int(s.now + lease), ticket)
  return s.now + lease
end

-- unwind cuts the leases that end last, as long as they end later than they can. A shorter lease that ends before one
-- that is in order is not looked at: it is cut when that one has gone, so it lasts as long as that one at most.
local function unwind(s)
  for _, size in ipairs({ 1, LAPSES }) do
    local last = redis.call('ZRANGE', s.holders, -size, -1, 'WITHSCORES')
    for i = #last - 1, 1, -2 do
      local ends = tonumber(last[i + 1])
      if last[i] == GUARD or cap(s, last[i], redis.call('HGET', s.lock, last[i]), ends) == ends then return end
    end
  end
  hold.flag(s, hold.MORE)
end

-- settle brings the lock up to date: it makes or mends it, writes down a number that is new, cuts leases after a step of the
-- clock, and ends those that have run out.
function permits.settle(s)
  if s.marked and not s.before then s.marked = hold.marked({ s.lock, s.queue, s.suspects }, s.now) end
  if s.new then
    make(s)
  elseif s.lost then
    forget_holds(s)
  elseif s.restated then
    redis.call('HSET', s.lock, unpack(counts(s)))
  end
  if s.used == 0 then return end
  unwind(s)
  local over = redis.call('ZRANGE', s.holders, '1', base.int(s.now), 'BYSCORE', 'LIMIT', 0, LAPSES)
  if #over > 0 then permits.lapse(s, over) end
  if #over == LAPSES then hold.flag(s, hold.MORE) end
end

-- held returns the permits, token, end and phase of a hold, or nothing where there is none with time left.
-- It looks at the ticket itself, as settle may not have come to it.
function permits.held(s, ticket)
  local record = redis.call('HGET', s.lock, ticket)
  local ends = record and redis.call('ZSCORE', s.holders, ticket)
  if not ends then return nil end
  local n, token, _, phase = permits.parse(record)
  ends = cap(s, ticket, record, tonumber(ends))
  if ends <= s.now then
    permits.lapse(s, { ticket })
    return nil
  end
  return n, token, ends, phase
end

-- free takes back the permits of a hold, whose lease has ended by ends at the latest. ZREM is accepted when memory is full,
-- and so is what follows. With the record of a hold that was used it says whether the permits stay taken.
function permits.free(s, ticket, n, ends, record)
  s.lives = math.max(s.lives, ends + SPARE_US)
  redis.call('ZREM', s.holders, ticket)
  redis.call('HDEL', s.lock, ticket)
  if record and rest(s, ticket, record, 'f') then return true end
  use(s, s.used - n)
  redis.call('HSET', s.lock, 'used', base.int(s.used))
end

-- lower leaves a hold one permit of what it has. It has written, so readers who come to it do not share its token.
function permits.lower(s, ticket)
  local n, rest = string.match(redis.call('HGET', s.lock, ticket), '^(%d+)(:.*)$')
  use(s, s.used - n + 1)
  redis.call('HSET', s.lock, 'used', base.int(s.used), ticket, '1' .. rest)
end

-- fence gives a token above every earlier one (I2). Readers that hold together share a token, unless a client has seen a
-- higher one.
local function fence(s, kind)
  if kind == 'r' and s.used > 0 and s.group == s.token and s.floor <= s.token then return base.int(s.token) end
  s.token = next_token(s.token, s.floor, s.now)
  if kind == 'r' then s.group, s.grouped = s.token, true end
  return base.int(s.token)
end

-- take lets tickets hold: a list of {ticket, kind, permits, lease_ms, phase}. It returns what it wrote of each:
-- the token and the end of the lease.
function permits.take(s, list, who)
  local fields, scores, wrote = {}, {}, {}
  local since, fresh, writer = base.int(s.now), s.token == 0, nil
  for i, head in ipairs(list) do
    local token, ends = fence(s, head.kind), base.int(s.now + head.lease_ms * 1000)
    use(s, s.used + head.permits)
    fields[2 * i - 1] = head.ticket
    fields[2 * i] = base.int(head.permits) .. ':' .. token .. ':' .. base.int(head.lease_ms * 1000) .. ':' ..
      head.phase .. ':' .. since .. ':' .. who
    scores[2 * i - 1], scores[2 * i] = ends, head.ticket
    wrote[i] = { token = token, ends = ends }
    if head.kind == 'w' then writer = token end
    s.ends = math.max(s.ends, tonumber(ends)) -- Of what this script grants.
    s.taken[head.ticket] = { permits = head.permits, token = s.token, ends = tonumber(ends) }
  end
  redis.call('HSET', s.lock, 'used', base.int(s.used), 'token', base.int(s.token), unpack(fields))
  if s.grouped then redis.call('HSET', s.lock, 'group', base.int(s.group)) end
  redis.call('ZADD', s.holders, unpack(scores))
  if writer and (s.before or fresh) then
    s.told, s.of, s.before = s.before or 'unknown:0', writer, false
    redis.call('HSET', s.lock, 'previous', writer .. ':' .. s.told)
  elseif fresh and list[1].kind == 'r' then
    permits.recall(s, 'unknown:0') -- Nobody knows of a writer before these readers.
  end
  return wrote
end

-- tell publishes grants of one client. If the message is refused they are undone.
local function tell(s, client, heads, text)
  local sent = redis.pcall('PUBLISH', hold.channel(s, client), text)
  if type(sent) ~= 'table' or not sent.err then return hold.flag(s, base.HANDED) end
  for _, head in ipairs(heads) do
    redis.call('ZADD', s.queue, head.score, head.ticket)
    permits.free(s, head.ticket, head.permits, s.now)
    permits.finish(s, head.ticket, head.permits, s.taken[head.ticket].token, 'unused')
    s.taken[head.ticket] = nil
  end
  s.created = true
  hold.flag(s, hold.UNWOKEN)
end

-- grant lets heads hold for their grant leases, and tells their clients: in the reply if that is the caller
-- (R5), else by message, with at most TOLD in one.
function permits.grant(s, heads, caller)
  for _, head in ipairs(heads) do
    head.phase = head.client == caller and 'r' or 'g'
  end
  local wrote, now = permits.take(s, heads, ''), base.int(s.now)
  local messages, open = {}, {}
  for i, head in ipairs(heads) do
    local client, w = head.client, wrote[i]
    if client == caller then
      permits.report(s, head.ticket, tonumber(w.token), tonumber(w.ends))
    else
      local m = open[client]
      if not m or #m.heads == TOLD then
        m = { client = client, words = { 'G' }, heads = {} }
        open[client], messages[#messages + 1] = m, m
      end
      table.insert(m.words, grant_words(head.ticket, now, base.int(w.token - s.now), head.lease_ms))
      table.insert(m.heads, head)
      m.told = told(s, tonumber(w.token))
    end
  end
  for _, m in ipairs(messages) do
    tell(s, m.client, m.heads, table.concat(m.words, ' ') .. grant_tail(m.told, s.note))
  end
end

-- report puts a hold into the reply, as one of the caller's.
function permits.report(s, ticket, token, ends)
  local n, before = #s.grants, told(s, token)
  if before then ticket = ticket .. ' !' .. before end
  s.grants[n + 1], s.grants[n + 2], s.grants[n + 3] = ticket, token, ends
end

-- unconfirmed reports grants that a client has not renewed, if they are among the holds that end next: grants end early.
function permits.unconfirmed(s, client)
  local first = redis.call('ZRANGE', s.holders, 1, FIRST, 'WITHSCORES')
  for i = 1, #first, 2 do
    if hold.client(first[i]) == client and not s.taken[first[i]] then
      local _, token, _, phase = permits.parse(redis.call('HGET', s.lock, first[i]) or '')
      if phase == 'g' or phase == 'r' then permits.report(s, first[i], token, tonumber(first[i + 1])) end
    end
  end
end

-- open makes a write that Redis accepts when memory is full; what a script writes after it is accepted too.
function permits.open(s)
  s.ends = tonumber(redis.call('ZRANGE', s.holders, -1, -1, 'WITHSCORES')[2] or 0)
  hold.open(s)
  s.ends = 0
end

-- reply is the long answer of a script of permits. until is when the next lease ends, or the mark until which permits
-- stay free, or 0.
function permits.reply(s, status, place, waiting, arrival, states)
  local ends = tonumber(redis.call('ZRANGE', s.holders, 1, 1, 'WITHSCORES')[2] or 0)
  if s.mark > s.now and (ends == 0 or s.mark < ends) then ends = s.mark end
  return { status, s.now, s.token, ends, place, waiting, arrival, s.flags, s.skipped, s.expired, s.grants,
    states or {} }
end

-- granted is the answer to a ticket that holds, with the number of its permits where its text has none.
function permits.granted(s, n, token, ends)
  local before = told(s, token)
  return { base.GRANTED, s.now, token, ends, n, 0, 0, s.flags, s.skipped, s.expired, s.grants, { before and '!' .. before or nil } }
end

-- refuse is the answer to a ticket that states another limit, or asks for more than there is.
function permits.refuse(s, status)
  return { status, s.now, s.token, 0, -1, 0, 0, s.flags, s.skipped, s.expired, s.grants, { base.int(s.limit) } }
end
