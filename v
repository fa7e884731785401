local ticket, format = ARGV[1], string.format
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local notafter = tonumber(ARGV[3])
if now > notafter then return { 4, now } end
local size = redis.call('ZCARD', KEYS[2])
local h = redis.call('HMGET', KEYS[1], 'owner', 'token', 'kept', 'version', 'until', 'high', 'marked', 'scan')
if not h[1] and size == 0 then
  local floor = tonumber(ARGV[4] or notafter - 2997000)
  local lease = string.match(ticket, '^[^:]*:%d+:x:%d+:(%d+):') * 1000
  local token = math.max(tonumber(h[2] or 0), floor, now - 1) + 1
  local ends = now + lease
  if token == now and tonumber(h[3] or 0) >= ends + 45000000 and h[4] == '2' then
    redis.call('HSET', KEYS[1], 'owner', ticket, 'until', format('%.0f', ends), 'token', format('%.0f', now), 'phase', 'held')
    return { 1, now, lease }
  end
  redis.call('HSET', KEYS[1], 'owner', ticket, 'until', format('%.0f', ends), 'token', format('%.0f', token), 'phase', 'held', 'version', '2')
    redis.call('HSET', KEYS[1], 'kept', format('%.0f', ends + 60000000))
    redis.call('PEXPIRE', KEYS[1], format('%.0f', (ends + 60000000 - now) / 1000))
  return { 1, now, token, ends }
end
if h[1] and h[1] ~= ticket and ARGV[2] == 'wait' then
  local ends = tonumber(h[5])
  local lease = string.match(h[1], '^[^:]*:%d+:x:%d+:(%d+):') * 1000
  if ends > now and ends - now <= lease and not h[7] and not h[8] then
    local need = math.max(ends, now + math.max(4000000, size * 10000))
    local arrival = math.max(now, tonumber(h[6] or 0) + 1)
    local text = format('%.0f', arrival)
    if size == 0 then
      redis.call('ZADD', KEYS[2], text, ticket)
      local kept = need + 60000000
      local ms = format('%.0f', (kept - now) / 1000)
      redis.call('HSET', KEYS[1], 'high', text, 'kept', format('%.0f', kept))
      redis.call('PEXPIRE', KEYS[1], ms)
      redis.call('PEXPIRE', KEYS[2], ms)
      return { 2, now, now - h[2], ends - now, 1, 1 }
    end
    if tonumber(h[3]) >= need + 45000000 and redis.call('ZADD', KEYS[2], 'NX', text, ticket) == 1 then
      redis.call('HSET', KEYS[1], 'high', text)
      local ahead = redis.call('ZRANK', KEYS[2], ticket) + 1
      return { 2, now, now - h[2], ends - now, ahead, size + 1 }
    end
  end
end
return { 12 }
