-- look_up(call, waiting, tickets): the entries, as texts, and clients of these tickets that are not known yet, in one
-- command.
local function look_up(call, waiting, tickets)
  local entries, clients, fields = waiting.entries, waiting.clients, {}
  for _, ticket in ipairs(tickets) do
    local id = client_of(ticket)
    if entries[ticket] == nil then
      entries[ticket] = false
      fields[#fields + 1] = ticket
    end
    if clients[id] == nil then
      clients[id] = false
      fields[#fields + 1] = id
    end
  end
  if #fields == 0 then return end
  local found = redis.call('HMGET', call.waiting, unpack(fields))
  for at, field in ipairs(fields) do
    if #field > 36 then
      entries[field] = found[at]
    else
      clients[field] = read_client(found[at])
    end
  end
end
