-- new_waiting(): K:waiting as a table, while nobody waits. `last` is the last sequence number (nil where nobody
-- waits), `living` counts the living tickets, `writers` those of them that are to write. `entries` (see entry_of) and
-- `clients` grow as they are looked up (false: not there). All changes are made here and written once, by
-- save_waiting: `gone` lists the tickets to delete, `touched` the clients to write.
local function new_waiting()
  return { living = 0, writers = 0, entries = {}, clients = {}, gone = {}, touched = {} }
end
