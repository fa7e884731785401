-- lib/grave: what the burials of a client at a name have in common.

local grave = {}

-- mark refuses requests of the client from now on, for so many ms (lib/mortal). The caller has made a write that is accepted when
-- memory is full.
function grave.mark(key, ms)
  redis.call('HSET', key, 'dead', '1')
  redis.call('PEXPIRE', key, ms)
end

-- has says whether a ticket is one of the client, and a client holds by it: none does by one that only keeps a name taken.
function grave.has(client, ticket)
  local of, kind = string.match(ticket, '^([^:]*):[^:]*:(%a):')
  return of == client and kind ~= 'z'
end
