-- fence/admit: refuse a token below the mark, or raise the mark to it. What the caller wants done follows, in
-- the same script, and finds its keys and arguments as if it were alone.
--
-- KEYS  …         the caller's
--       mark      hash  token: the highest that was seen
-- ARGV  …         the caller's
--       token     decimal, without leading zeros
--       lifetime  ms that the mark outlives its last use; 0: it does not expire from its next token on
-- REPLY what the caller's part answers; or the error STALEFENCE and the highest token, or BADFENCE if the mark
--       cannot be read, and then nothing was changed
-- RETRY safe in itself, as an equal token is admitted again; for the rest the caller's part decides
do
  local mark, lifetime, token = table.remove(KEYS), table.remove(ARGV), table.remove(ARGV)
  local highest = redis.call('HGET', mark, 'token')
  if highest then
    -- Compared as text: numbers would lose digits from 2^53 on.
    if not string.find(highest, '^[1-9]%d*$') then return redis.error_reply('BADFENCE ' .. highest) end
    if #token < #highest or #token == #highest and token < highest then
      return redis.error_reply('STALEFENCE ' .. highest)
    end
  end
  if token ~= highest then
    redis.call('HSET', mark, 'token', token)
    if lifetime == '0' then redis.call('PERSIST', mark) end
  end
  if lifetime ~= '0' then redis.call('PEXPIRE', mark, lifetime) end
end
