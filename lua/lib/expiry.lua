-- lib/expiry: the lease that runs out by the server's time. Not the expiry of the key decides, so that
-- it is still known whose it was.
-- @include lib/hold.lua

local expiry = {}

local SUSPECT_US = 600 * 1000000 -- how long a suspect is remembered

-- suspect remembers a client that let a lease run out, and tells it, in case it lives: by message, or in
-- the reply if it is the caller.
function expiry.suspect(s, ticket)
  local client = hold.client(ticket)
  redis.call('HSET', s.lock, 'lapsed', ticket, 'marked', '1')
  redis.call('ZREMRANGEBYSCORE', s.suspects, '-inf', base.int(s.now - SUSPECT_US))
  redis.call('ZADD', s.suspects, base.int(s.now), client)
  s.marked, s.created = '1', true
  if client == s.caller then
    hold.flag(s, hold.SUSPECTED)
  else
    redis.pcall('PUBLISH', hold.channel(s, client), 'S ' .. ticket)
  end
end

-- settle ends a lease that has run out, and cuts one that ends later than it can because the server's
-- clock stepped back.
function expiry.settle(s)
  if not s.owner then return end
  if s.ends - s.now > s.lease then
    s.ends = s.now + s.lease
    hold.flag(s, hold.STEPPED)
    hold.open(s)
    redis.call('HSET', s.lock, 'until', base.int(s.ends))
  end
  if s.ends > s.now then return end
  local ticket = s.owner
  hold.free(s)
  hold.clear(s)
  s.expired = 1
  if s.phase == 'final' then
    redis.call('HSET', s.lock, 'lapsed', ticket)
  else
    expiry.suspect(s, ticket)
  end
end
