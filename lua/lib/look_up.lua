-- look_up(call, waiting, tickets): the entries and clients of these tickets that are not known yet, in one command.
local function look_up(call, waiting, tickets)
  local fields, asked = {}, {}
  local function ask(known, field)
    if known[field] == nil and not asked[field] then
      asked[field] = true
      fields[#fields + 1] = field
    end
  end
  for _, ticket in ipairs(tickets) do
    ask(waiting.entries, ticket)
    ask(waiting.clients, client_of(ticket))
  end
  if #fields == 0 then return end
  local found = redis.call('HMGET', call.waiting, unpack(fields))
  for at, field in ipairs(fields) do
    if field:find(':', 1, true) then
      waiting.entries[field] = read_entry(found[at])
    else
      waiting.clients[field] = read_client(found[at])
    end
  end
end
