-- lib/origin: which master a server is.

local origin = {}

-- of is the replication id of a master, a blank and the id that it had as a replica; empty where the server does not say so.
-- Two masters with one of these in common have the same data, for the most part: one has taken over from the other.
function origin.of()
  local known, allowed = pcall(redis.acl_check_cmd, 'INFO')
  if known and not allowed then return '' end
  local info = redis.pcall('INFO', 'replication')
  if type(info) ~= 'string' or not string.find(info, 'role:master', 1, true) then return '' end
  local id = string.match(info, 'master_replid:(%x+)')
  return id and id .. ' ' .. (string.match(info, 'master_replid2:(%x+)') or '') or ''
end
