-- lib/reason: why a ticket is not, or no longer, the owner.
-- @include lib/hold.lua

local reason = {}

-- of says forced, expired, died (its client was buried), or, if the lock knows nothing of the ticket, forgotten. The record
-- goes one lease back: a holder whose deadline has passed by its own clock need not ask.
function reason.of(s, ticket)
  if s.owner == ticket then return 'expired' end
  local h = redis.call('HMGET', s.lock, 'forced', 'lapsed', 'died')
  if h[1] == ticket then return 'forced' end
  if h[2] == ticket then return 'expired' end
  if h[3] == hold.client(ticket) then return 'died' end
  return 'forgotten'
end
