-- read_waiting(call, ticket): K:waiting as the table of new_waiting, with this ticket and its client looked up; nil
-- where the key is not ours.
local function read_waiting(call, ticket)
  local found = peek('HMGET', call.waiting, 'queue', client_of(ticket), ticket)
  if not found then return nil end
  local waiting = new_waiting()
  if found[1] then
    local kind, last, living, writers = found[1]:match('^(%S+) (%d+) (%d+) ?(%d*)$')
    if not kind then return nil end
    waiting.kind, waiting.last, waiting.living, waiting.writers =
      kind, tonumber(last), tonumber(living), tonumber(writers) or 0
    waiting.clients[client_of(ticket)] = read_client(found[2])
    waiting.entries[ticket] = read_entry(found[3])
  end
  return waiting
end
