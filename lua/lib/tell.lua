-- tell(call, ticket, text): a message to the client of this ticket, with the lock at its end: a client that no
-- longer knows the ticket can then give it back. Returns how many received it; nil where the server's rules forbid
-- us to send it.
local function tell(call, ticket, text)
  if not call.channel then
    local space, tag = call.lock:match('^(.-):({.*})$')
    call.channel = call.sharded and space .. ':wake:' .. tag .. ':' or space .. ':wake:'
    call.signature = ' ' .. call.kind .. ' ' .. call.lock
  end
  local channel, heard = call.channel .. client_of(ticket)
  text = text .. call.signature
  if call.sharded then
    heard = redis.pcall('SPUBLISH', channel, text)
  else
    heard = redis.pcall('PUBLISH', channel, text)
  end
  return type(heard) == 'number' and heard or nil
end
