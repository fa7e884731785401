-- lib/hold: the hash of a lock as a table, its owner, how long its keys live, and the reply.
-- @include lib/base.lua

local hold = {
  -- flags of a reply, in addition to base.HANDED
  MORE = 1,       -- the work was cut at its bound: look again at once
  SUSPECTED = 2,  -- the calling client let a lease run out
  STEPPED = 4,    -- the server's clock stepped back, and a lease was cut to its length
  UNWOKEN = 16,   -- PUBLISH was refused: the head must look by itself
  UNCOUNTED = 32, -- PUBSUB NUMSUB was refused: nobody is skipped
  WANTED = 64,    -- somebody waits for what the ticket holds
  DIFFERS = 128,  -- clients state different numbers of permits
}

-- lease is the longest that a hold lasts without a renewal since its phase began, in µs: no renewal is for longer than
-- the lease in the text of its ticket.
function hold.lease(ticket, phase)
  local lease, first = ticket_terms(ticket)
  if not lease then return 0 end
  return (phase == 'granted' and math.min(tonumber(lease), tonumber(first)) or tonumber(lease)) * 1000
end

-- marked says whether a lock marked for suspects can still have some, and otherwise removes the mark, which keeps
-- requests off the fast path. A suspect is passed over in the queue and gets no new place. So once the head came later
-- than the marks, no suspect holds anybody up; a minute is enough for live clients to learn of theirs.
function hold.marked(keys, now)
  local head = tonumber(redis.call('ZRANGE', keys[2], 0, 0, 'WITHSCORES')[2] or now)
  local since = math.max(now - SUSPECT_US, math.min(now - SUSPECT_LEAST_US, head))
  if redis.call('ZCOUNT', keys[3], '(' .. base.int(since), '+inf') > 0 then return '1' end
  redis.call('HDEL', keys[1], 'marked')
  redis.call('ZREMRANGEBYRANK', keys[3], 0, 2047)
  return false
end

-- previous reads how the hold before ended, if it was not released: the field has "for:how:token", and ":keeps" where the keys
-- live until then for it. Until somebody is granted, for is 0, and how:token is in s.before. After that it is the token of the
-- present hold, and how:token in s.told, because a repeated reply says the same.
local function previous(s, field, token)
  local of, how, keeps = string.match(field or '', '^(%d+):(%a+:%d+):?(%d*)$')
  if of == '0' then
    s.before = how
  elseif of and of == token then
    s.told = how
  end
  s.remains = (s.before or s.told) and tonumber(keeps) or 0
end

-- note writes down how the hold before ended: for the next, if of is 0, or for the hold with that token.
local function note_ending(s, of, how)
  redis.call('HSET', s.lock, 'previous', of .. ':' .. how .. (s.remains > 0 and ':' .. base.int(s.remains) or ''))
end

-- finish notes how the present hold ends: released, without how. An unused one leaves what was told to it. What rests has
-- ended before.
local function finish(s, how)
  if not s.owner or string.find(s.owner, ':z:', 1, true) then return end
  if how == 'unused' then
    s.before = s.told
  elseif how then
    s.before, s.remains = how .. ':' .. base.int(s.token), s.keeps
  end
  s.told, s.keeps = nil, 0
end

-- read loads the lock. A key of another type ends the script here, before anything is written: the
-- suspects are looked at only where they are about to be used.
function hold.read(keys, now, floor, counted)
  local h = redis.call('HMGET', keys[1],
    'owner', 'until', 'version', 'token', 'high', 'phase', 'mark', 'scan', 'marked', 'kept', 'rests', 'previous', 'keeps')
  if h[3] then error(other_version(h[3])) end -- @logged expect()
  if h[1] == NOBODY then h[1], h[2] = false, false end
  local phase, wants = h[6] or 'held', wants_word(h[6])
  if wants then phase = phase == 'final wants' and 'final' or 'held' end
  -- Where the hash is lost the queue may have outlived it.
  local left = keys[2] and not h[4] and not h[5] and redis.call('ZCARD', keys[2]) > 0 and 1
  local lease = h[1] and hold.lease(h[1], phase) or 0
  local ends = h[1] and ends_at(h[2], h[4], lease) or 0
  local of, rests, least = string.match(h[1] and h[11] or '', '^(%d+):(%d+):(%d+)$')
  if of ~= h[4] then rests, least = nil, nil end
  local keeps
  of, keeps = string.match(h[1] and h[13] or '', '^(%d+):(%d+)$')
  if of ~= h[4] then keeps = nil end
  local marked = h[9]
  if keys[3] and marked then
    marked = hold.marked(keys, now)
  elseif keys[3] and h[1] and ends <= now then
    redis.call('ZCARD', keys[3])
  end
  local s = {
    lock = keys[1], queue = keys[2], suspects = keys[3], now = now,
    owner = h[1], ends = ends, lease = lease, plain = h[1] and not h[2],
    token = tonumber(h[4] or 0), high = tonumber(h[5] or left or 0), phase = phase, wants = h[1] and wants and hold.client(h[1]),
    mark = tonumber(h[7] or 0), scan = h[8], marked = marked, kept = tonumber(h[10] or 0),
    -- Until when the name stays taken, and for how long at the most if the server's clock steps back.
    rests = rests and math.min(tonumber(rests), now + least) or 0, least = tonumber(least or 0),
    -- Until when the keys are to live if the hold ends without a release.
    keeps = tonumber(keeps or 0),
    -- A renewal prolongs the lock alone, and does not write that down.
    lives = h[1] and ends + SPARE_US or 0,
    floor = base.floor(floor, now), counted = counted ~= '0', stale = false, created = false,
    flags = 0, skipped = 0, expired = 0,
  }
  previous(s, h[12], h[4])
  return s
end

function hold.flag(s, f)
  if s.flags % (f * 2) < f then s.flags = s.flags + f end
end

-- suspected says whether a client let a lease run out. A mark in the future is of a client that was called, and has until
-- then to answer.
function hold.suspected(s, client)
  local mark = s.marked and redis.call('ZSCORE', s.suspects, client)
  return mark and tonumber(mark) <= s.now
end

-- client is the part of a ticket that names its client.
function hold.client(ticket)
  return string.match(ticket, '^[^:]*')
end

function hold.channel(s, client)
  return s.lock .. ':wake:' .. client
end

-- forced notes that a hold was released by force, and tells its client.
function hold.forced(s, ticket)
  redis.call('HSET', s.lock, 'forced', ticket)
  hold.taken(s, ticket)
end

-- taken tells a client that a hold was taken from it, on the one channel that it has for all its holds. That is
-- never a sharded one, as its names are in many slots: hence the quotes, which the loader does not look for.
function hold.taken(s, ticket)
  local prefix = string.match(s.lock, '^([^{]*):[^:{]*:{')
  redis.pcall("PUBLISH", prefix .. ':wake:' .. hold.client(ticket), 'F ' .. ticket .. ' ' .. s.lock)
end

-- wanted tells the clients that asked for it, once, that somebody waits for what they hold, with the last token that was
-- given: a later hold is not meant. If the message is lost, the next renewal tells.
function hold.wanted(s)
  if not s.wants then return end
  if s.holders then
    redis.call('HDEL', s.lock, 'wants')
  else
    redis.call('HSET', s.lock, 'phase', s.phase)
  end
  for client in string.gmatch(s.wants, '%S+') do
    redis.pcall('PUBLISH', hold.channel(s, client), 'W ' .. base.int(s.token))
  end
  s.wants = false
end

-- open makes a write that Redis accepts when memory is full; what a script writes after it is accepted
-- too. While somebody holds, the time that keys are kept for covers the token.
function hold.open(s)
  local need = math.max(s.now, s.owner and math.max(s.ends, s.keeps or 0) or token_need(s.token, s.now))
  local until_us = math.max(s.kept, need + SPARE_US)
  redis.call('PEXPIRE', s.lock, base.int((until_us - s.now) / 1000))
end

-- free takes the lock from its owner. The field goes when the lock is granted again, or with clear. The next hold is told how
-- this one ended: expired, died, forced or stalled; nothing, if it was released; or unused, if no call had it.
function hold.free(s, how)
  finish(s, how)
  s.owner, s.stale, s.wants, s.rests = false, true, false, 0
end

-- stay keeps the name taken for least µs from the grant, whatever becomes of the hold. If an earlier holder handed the
-- hold over and asked for a later time, that counts. If the hold ends without a release, its keys live for as many µs after
-- the lease as keeps says.
function hold.stay(s, least, keeps)
  local token = base.int(s.token)
  local of, since = string.match(redis.call('HGET', s.lock, 'since') or '', '^(%d+):(%d+)$')
  local from = math.min(of == token and tonumber(since) or s.token, s.now)
  if least > 0 then s.rests, s.least = math.max(s.rests, from + least), math.max(s.least, least) end
  if keeps > 0 then s.keeps = s.ends + keeps end
  if s.high == 0 then -- Its end is to look at how long keys live.
    s.high = 1
    redis.call('HSET', s.lock, 'high', '1')
  end
  hold.staying(s)
  s.created = true -- What is usual does not know of these, and prolongs keys for the lease.
  hold.keep(s, redis.call('ZCARD', s.queue))
end

-- staying writes down until when the name stays taken, and its keys live, with the token of the hold.
function hold.staying(s)
  local token = base.int(s.token)
  if s.rests > 0 then redis.call('HSET', s.lock, 'rests', token .. ':' .. base.int(s.rests) .. ':' .. base.int(s.least)) end
  if s.keeps > 0 then redis.call('HSET', s.lock, 'keeps', token .. ':' .. base.int(s.keeps)) end
end

-- rest says whether the name stays taken now that its hold has ended. If so, a ticket that no client has holds it, and
-- nobody renews that. HDEL is accepted when memory is full, and so is what follows. how is as for hold.free.
function hold.rest(s, how)
  if s.rests <= s.now then return false end
  redis.call('HDEL', s.lock, 'rests')
  finish(s, how)
  if s.before then note_ending(s, '0', s.before) end
  local ms = base.int(s.least / 1000)
  s.owner = hold.resting(s.owner) .. '1:' .. ms .. ':' .. ms
  s.ends, s.lease, s.phase, s.plain, s.wants, s.rests = s.rests, s.least, 'final', false, false, 0
  redis.call('HSET', s.lock, 'owner', s.owner, 'until', base.int(s.ends), 'phase', 'final')
  return true
end

-- resting is the beginning of the ticket that keeps a name taken after the hold of another ticket.
function hold.resting(ticket)
  return string.match(ticket, '^[^:]*:[^:]*:') .. 'z:'
end

-- rests says whether a name stays taken after the hold of a ticket.
function hold.rests(s, ticket)
  local first = s.owner and hold.resting(ticket)
  return first and string.sub(s.owner, 1, #first) == first
end

-- look tells the head to look, because the hold that it waits for may end before the lease that it knows of.
function hold.look(s)
  local head = redis.call('ZRANGE', s.queue, 0, 0)[1]
  if head then redis.pcall('PUBLISH', hold.channel(s, hold.client(head)), 'L ' .. head) end
end

-- clear removes what free has left, unless the next hold is to be told how this one ended. HDEL, too, is accepted when memory
-- is full, and so is what follows.
function hold.clear(s)
  if not s.stale then return end
  redis.call('HDEL', s.lock, 'owner', 'until', 'phase')
  if s.before then
    note_ending(s, '0', s.before)
    redis.call('HSET', s.lock, 'owner', NOBODY, 'until', '1', 'phase', 'final')
  end
  s.stale = false
end

-- forget clears what passes over the queue have stored.
function hold.forget(s)
  if s.scan or s.mark > 0 then
    redis.call('HDEL', s.lock, 'scan', 'mark')
    s.scan, s.mark = false, 0
  end
end

-- passes is how often the client of a ticket may pass its hold on, each time with a token higher by one.
function hold.passes(ticket)
  return tonumber(string.match(ticket, ':(%d+):%d+:%d+$') or 1) - 1
end

-- among says whether a token is one of the present hold's.
function hold.among(s, token)
  return token >= s.token and token <= s.token + hold.passes(s.owner)
end

-- spend raises the last token to the highest that the hold of a ticket may have had, because it ended before its client
-- said which.
function hold.spend(s, ticket)
  local passes = hold.passes(ticket)
  if passes <= 0 then return end
  s.token = s.token + passes
  redis.call('HSET', s.lock, 'token', base.int(s.token))
end

-- own writes a new owner, with a token above every earlier one (I2). It returns the time of the grant as text. Of a lock
-- without a token nothing is known.
function hold.own(s, ticket, lease_ms, phase)
  local now = base.int(s.now)
  s.told, s.before, s.keeps = s.before or s.token == 0 and 'unknown:0' or nil, nil, 0
  -- Without high its end does not look at the queue, nor at how long keys live.
  if s.high == 0 and lease_ms * 1000 > MOST_US - SPARE_US or s.high > 0 and s.token == 0 then
    s.high = math.max(s.high, 1)
    redis.call('HSET', s.lock, 'high', base.int(s.high))
  end
  s.token = next_token(s.token, s.floor, s.now)
  s.lease = lease_ms * 1000
  s.ends = s.now + s.lease
  s.owner, s.phase, s.stale = ticket, phase, false
  local token, ends = s.token == s.now and now or base.int(s.token), base.int(s.ends)
  redis.call('HSET', s.lock, 'owner', ticket, 'until', ends, 'token', token, 'phase', phase)
  if token ~= now then redis.call('HSET', s.lock, 'since', since_words(token, now)) end
  if s.told then note_ending(s, token, s.told) end
  return now
end

-- excess says whether the keys live for much longer than they are needed, as after the end of a long lease. Where several
-- hold, it is known what renewals have prolonged only of holds that have just ended.
local function excess(s, need, idle)
  if s.holders and s.stated ~= s.limit then return false end -- It was resized.
  if s.holders then return idle and s.kept > need + MOST_US or s.lives > need + MOST_US + SPARE_US end
  local lasts = s.owner and string.match(s.owner, ':(%d+):%d+$') or 0 -- The lease, from its first renewal on.
  return math.max(s.kept, s.lives) > math.max(need, s.now + lasts * 1000) + MOST_US
end

-- keep sets when all keys expire (I6): about a minute after the lease has ended, the clock has passed the token, and two of
-- the waiters' longest poll intervals are over. The fast path of a release does not count the waiters: if there are many,
-- their own acquire requests and checks keep the keys.
function hold.keep(s, waiting, at_end)
  local idle = not s.owner and waiting == 0 and not s.created
  local need = math.max(s.now, token_need(s.token, s.now), s.owner and math.max(s.ends, s.rests, s.keeps or 0) or 0,
    s.before and s.remains or 0)
  local least = need
  if not idle then
    need = math.max(need, queue_need(waiting, s.now))
    least = at_end and math.max(least, queue_need(0, s.now)) or need
  end
  local short = not idle and (s.created or s.kept < least + LEAST_US)
  local long = excess(s, need, idle)
  if not short and not long then return end
  if s.holders then -- What renewals have prolonged counts too.
    need = math.max(need, tonumber(redis.call('ZRANGE', s.holders, -1, -1, 'WITHSCORES')[2] or 0))
    long = long and excess(s, need, idle)
    if not short and not long then return end
  end
  s.kept = long and need + SPARE_US or math.max(s.kept, need + SPARE_US)
  s.lives, s.created = 0, false
  local ms = base.int((s.kept - s.now) / 1000)
  redis.call('HSET', s.lock, 'kept', base.int(s.kept))
  redis.call('PEXPIRE', s.lock, ms)
  redis.call('PEXPIRE', s.queue, ms)
  if s.marked then redis.call('PEXPIRE', s.suspects, ms) end
  if s.holders then redis.call('PEXPIRE', s.holders, ms) end
end

-- report puts the present hold into the reply, as one of the caller's.
function hold.report(s)
  s.grants = { s.owner .. (s.told and ' !' .. s.told or ''), s.token, s.ends }
end

-- granted is the answer to the ticket that holds.
function hold.granted(s)
  return hold.reply(s, base.GRANTED, 0, 0, 0, s.told and { '!' .. s.told })
end

-- reply is the long answer of a script of a lock. Where nobody holds, until is the end of the mark until which the lock
-- stays free, or 0.
function hold.reply(s, status, place, waiting, arrival, states)
  return { status, s.now, s.token, s.owner and s.ends or s.mark, place or 0, waiting or 0, arrival or 0,
    s.flags, s.skipped, s.expired, s.grants or {}, states or {} }
end
