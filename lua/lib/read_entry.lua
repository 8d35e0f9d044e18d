-- read_entry(text): a ticket's field of K:waiting as a table, `tail` as in read_request; false where there is none.
local function read_entry(text)
  local sequence, arrival, mode, lease, block, tail, owner =
    (text or ''):match('^(%d+) (%d+) (%S+) (%d+) (%d+) ((%S+).*)$')
  return sequence and {
    sequence = tonumber(sequence), arrival = tonumber(arrival), mode = mode, lease = tonumber(lease),
    block = tonumber(block), tail = tail, owner = owner,
  }
end
