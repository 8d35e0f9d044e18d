-- client_of(ticket): the client in <client-id>:<n>.
local function client_of(ticket)
  return ticket:match('^[^:]*')
end
