-- drop_ticket(waiting, ticket): the ticket no longer waits. What is left of it in the list is a dead entry. Returns its
-- client, if that is known.
local function drop_ticket(waiting, ticket)
  local entry = waiting.writers > 0 and entry_of(waiting, ticket)
  if not waiting.entries[ticket] then return end
  if entry and entry.mode == 'write' then waiting.writers = waiting.writers - 1 end
  waiting.entries[ticket] = false
  waiting.gone[#waiting.gone + 1] = ticket
  waiting.living = waiting.living - 1
  local client = touch_client(waiting, ticket)
  if client then client.living = client.living - 1 end
  return client
end
