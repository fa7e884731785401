-- lib/leader: who leads, and in which generation.
-- @include lib/base.lua

local leader = {}

local NEAR = 200 -- the most observers that are told when to look for the end of a leadership

-- read tells who leads now: the owner, if its lease lasts and the proclamation is its own. The generation is the
-- proclamation's. While nobody leads by it, it is one higher, so that the end is a generation of its own.
function leader.read(lock, now)
  local h = redis.call('HMGET', lock, 'owner', 'until', 'token', 'proclaimed', 'revision', 'who', 'since', 'version')
  if h[8] then error(other_version(h[8])) end
  local s = {
    lock = lock, now = now, flags = 0, ends = 0,
    token = tonumber(h[3] or 0), revision = tonumber(h[5] or 0), who = h[6] or '', since = string.match(h[7] or '', '^' .. (h[3] or '') .. ':(%d+)$') or h[3] or '0',
  }
  local ends = h[1] and ends_at(h[2], s.token, ticket_terms(h[1]) * 1000)
  s.leads = h[1] and ends > now and h[4] == h[3]
  if s.leads then s.ends = ends end
  s.generation = s.leads and s.revision or s.revision + 1
  return s
end

-- hearing is the number of clients that observe, 0 if that cannot be known.
function leader.hearing(s, counted)
  if counted ~= '1' then return 0 end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', s.lock .. ':wake')
  if counts.err then
    s.flags = 32
    return 0
  end
  return counts[2]
end

-- reply is the answer to observers. Where they are few, until says when the lease of the leader ends, so that they look
-- then: a leader that dies sends no message.
function leader.reply(s, status, counted, states)
  local n = leader.hearing(s, counted)
  return { status, s.now, s.token, n <= NEAR and s.ends or 0, 0, n, s.generation, s.flags, 0, 0, {}, states or {} }
end
