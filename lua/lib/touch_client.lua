-- touch_client(waiting, ticket): the client of this ticket, to be written by save_waiting; nothing where it has no
-- field.
local function touch_client(waiting, ticket)
  local id = client_of(ticket)
  local client = waiting.clients[id]
  if client and not client.touched then
    client.touched = true
    waiting.touched[#waiting.touched + 1] = id
  end
  return client
end
