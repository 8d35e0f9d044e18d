-- entry_of(waiting, ticket): the ticket's entry as a table. What look_up found is taken apart only here, for that takes
-- longer than all else, and nobody needs it of those who are dead.
local function entry_of(waiting, ticket)
  local entry = waiting.entries[ticket]
  if type(entry) == 'string' then
    entry = read_entry(entry) or false
    waiting.entries[ticket] = entry
  end
  return entry
end
