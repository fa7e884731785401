-- lib/vacant: what follows the end of a leadership, whose reply is in reply: the observers are told if nobody leads. The
-- status is DONE of lib/base, the flag a refused PUBLISH of lib/hold.
if reply[1] == 5 then
  local h = redis.call('HMGET', KEYS[1], 'owner', 'revision', 'until')
  if (not h[1] or h[3] == '1') and h[2] then -- Or NOBODY has it.
    local sent = redis.pcall('PUBLISH', KEYS[1] .. ':wake', 'O ' .. h[2])
    if type(sent) == 'table' and sent.err then
      if not reply[8] then reply = { reply[1], 0, 0, 0, -1, 0, 0, 0 } end
      if reply[8] % 32 < 16 then reply[8] = reply[8] + 16 end
    end
  end
end
