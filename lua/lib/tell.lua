-- tell(call, ticket, text): a message to the client of this ticket, with the lock at its end: a client that no
-- longer knows the ticket can then give it back. Returns how many received it; nil where the server's rules forbid
-- us to send it.
local function tell(call, ticket, text)
  if not call.channels then
    local space, tag = call.lock:match('^(.-):({.*})$')
    call.channels = space .. ':wake:' .. (call.sharded and tag .. ':' or '')
    call.about = ' ' .. call.kind .. ' ' .. call.lock
  end
  local heard
  local channel = call.channels .. client_of(ticket)
  if call.sharded then
    heard = redis.pcall('SPUBLISH', channel, text .. call.about)
  else
    heard = redis.pcall('PUBLISH', channel, text .. call.about)
  end
  return type(heard) == 'number' and heard or nil
end
