-- list_waiting(call, waiting): the living ones among the first 256 entries of the queue, as { ticket, mode, arrival,
-- what is left of its client's deadline, deaf, owner, label }.
local function list_waiting(call, waiting)
  local list, seen = {}, {}
  for first = 0, 255, 64 do
    local chunk = redis.call('LRANGE', call.queue, first, first + 63)
    if #chunk == 0 then break end
    look_up(call, waiting, chunk)
    for _, ticket in ipairs(chunk) do
      local entry, client = waiting.entries[ticket], waiting.clients[client_of(ticket)]
      if entry and client and not seen[ticket] then
        seen[ticket] = true
        local left = math.max(0, client.deadline - call.now)
        list[#list + 1] = {
          ticket, entry.mode, entry.arrival, left, client.deaf and 1 or 0, entry.owner, entry.label,
        }
      end
    end
  end
  return list
end
