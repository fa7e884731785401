-- lib/mortal: the start of a request of a client with an identity. If the client was buried at a name of the request, the
-- request is refused and changes nothing: it was under way when its process died, or its process has been replaced.
--
-- The scripts that can take or queue something have a variant that begins with this. It has one key more for each name, and
-- one argument more, the last ones: the keys by which a burial marks the client, and how many names there are. A burial
-- makes them, and they live longer than any request can be under way (R7).

for _ = 1, tonumber(table.remove(ARGV)) do
  if redis.call('HEXISTS', table.remove(KEYS), 'dead') == 1 then
    return redis.error_reply('REPLACED headwaiter: another process has taken the identity of this client')
  end
end
