-- client_of(ticket): the client in <client-id>:<n>, whose id is a UUID. (A pattern takes three times as long.)
local function client_of(ticket)
  return ticket:sub(1, 36)
end
