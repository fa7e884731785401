-- waitqueue/raise: a client takes an identity, and learns who had it before; or a witness takes it from its client.
--
-- KEYS  identity    hash  the present client, its incarnation, and those before that are not buried yet
-- ARGV  client      who takes it; empty: nobody does, a witness says that the present client is dead
--       who         name@host#pid
--       invocation  what tells the run of the program from others, as INVOCATION_ID of systemd; of a witness, whose death it
--                   has seen: the identity stays as it is if its client has said another one. Empty: it is not known
--       then each client of the same process that has an identity: if one of them has this one, it stays as it is
-- REPLY {status, incarnation, then each client that is to be buried}
--       status is DONE, or REFUSED: the identity is another run's, or a client's of the same process
-- RETRY safe: a client that has the identity keeps its incarnation

-- @include lib/identity.lua
local client, now = ARGV[1], base.now()
local before, incarnation, invocation, older = identity.read(KEYS[1])
local free = client ~= '' or before and (ARGV[3] == '' or ARGV[3] == invocation)
for i = 4, #ARGV do free = free and ARGV[i] ~= before end
if not free then return { base.REFUSED, incarnation } end
if before ~= client then
  incarnation = math.max(now, incarnation + 1)
  local said = client ~= '' and ARGV[3] or invocation -- A witness that asks again finds it.
  older = identity.give(KEYS[1], before, older, client, incarnation, ARGV[2], said)
end
return { base.DONE, incarnation, unpack(older) }
