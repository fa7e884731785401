-- lib/expiry: the end of a lease, by the server's time. The expiry of the key does not decide, so that the holder is
-- still known after it.
-- @include lib/hold.lua

local expiry = {}

local LISTED = 2048     -- tickets at the head of the queue whose clients are called
local CALLED = 256      -- clients called in one script; and tickets, where subscribers are not counted: if clients look in
                        -- place of hearing, those far back may not look before they have to answer
local CALL_US = 1000000 -- how long a client that is called has to answer

-- mark lets the tickets of a client be passed over. Its first write is one that is not accepted when memory is full.
function expiry.mark(s, client)
  redis.call('HSET', s.lock, 'marked', '1')
  redis.call('ZREMRANGEBYSCORE', s.suspects, '-inf', base.int(s.now - SUSPECT_US))
  redis.call('ZADD', s.suspects, base.int(s.now), client)
  s.marked, s.created = '1', true
end

-- suspect remembers a client that let a lease run out, and tells it, in case it lives: by message, or in
-- the reply if it is the caller.
function expiry.suspect(s, ticket)
  local client = hold.client(ticket)
  redis.call('HSET', s.lock, 'lapsed', ticket)
  expiry.mark(s, client)
  if client == s.caller then
    hold.flag(s, hold.SUSPECTED)
  else
    redis.pcall('PUBLISH', hold.channel(s, client), 'S ' .. ticket)
  end
end

-- call asks the clients at the head of the queue whether they live, because one let a grant run out: a
-- stopped process is seldom alone. Each is marked as a suspect from CALL_US on; its next check removes the mark.
function expiry.call(s)
  local called, n = {}, 0
  for _, ticket in ipairs(redis.call('ZRANGE', s.queue, 0, (s.counted and LISTED or CALLED) - 1)) do
    local client = hold.client(ticket)
    if client ~= s.caller and not called[client] and n < CALLED then
      called[client], n = true, n + 1
      if redis.call('ZADD', s.suspects, 'NX', base.int(s.now + CALL_US), client) == 1 then
        local sent = redis.pcall('PUBLISH', hold.channel(s, client), 'L ' .. ticket)
        if type(sent) == 'table' and sent.err then redis.call('ZREM', s.suspects, client) end
      end
    end
  end
end

-- answer removes a client from the suspects if it was called and answers in time, or has proved that it hears.
function expiry.answer(s, client, proven)
  if not proven then
    local mark = s.marked and redis.call('ZSCORE', s.suspects, client)
    if not mark or tonumber(mark) <= s.now then return end
  end
  redis.call('ZREM', s.suspects, client)
  if redis.call('ZCARD', s.suspects) == 0 and not (s.holders and s.before) then
    redis.call('HDEL', s.lock, 'marked')
    s.marked = false
  end
end

-- settle ends a lease that has run out. If more time is left than the whole lease, the server's clock has stepped
-- back: then settle cuts the lease to its length.
function expiry.settle(s)
  if not s.owner then return end
  if s.ends - s.now > s.lease then
    s.ends = s.now + s.lease
    hold.flag(s, hold.STEPPED)
    hold.open(s)
    redis.call('HSET', s.lock, 'until', base.int(s.ends))
    if s.plain then redis.call('HSET', s.lock, 'phase', s.phase) end
  end
  if s.ends > s.now then return end
  local ticket, ends = s.owner, s.ends
  if hold.rests(s, ticket) then
    hold.free(s) -- Its end was told when it began to rest.
    return hold.clear(s)
  end
  local phase = s.phase
  if not hold.rest(s, 'expired') then hold.free(s, 'expired') end
  hold.clear(s) -- @logged note(s.lock, ticket, base.int(s.token), base.int(ends), 'expired')
  hold.spend(s, ticket)
  s.expired = 1
  if phase == 'final' then
    redis.call('HSET', s.lock, 'lapsed', ticket)
  else
    expiry.suspect(s, ticket)
    if phase == 'granted' then expiry.call(s) end
  end
end
