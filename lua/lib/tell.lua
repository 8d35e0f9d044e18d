-- tell(call, ticket, text): a message to the client of this ticket, with the lock at its end: a client that no
-- longer knows the ticket can then give it back. Returns how many received it; nil where the server's rules forbid
-- us to send it.
local function tell(call, ticket, text)
  local space, tag = call.lock:match('^(.-):({.*})$')
  local heard
  text = text .. ' ' .. call.kind .. ' ' .. call.lock
  if call.sharded then
    heard = redis.pcall('SPUBLISH', space .. ':wake:' .. tag .. ':' .. client_of(ticket), text)
  else
    heard = redis.pcall('PUBLISH', space .. ':wake:' .. client_of(ticket), text)
  end
  return type(heard) == 'number' and heard or nil
end
