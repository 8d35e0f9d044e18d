-- list_waiting(call): the living ones among the first 256 entries of the queue: each ticket, and what K:waiting says of
-- it and of its client. (To take that apart here would cost more than all else.)
local function list_waiting(call)
  local list, seen = {}, {}
  for first = 0, 255, 64 do
    local chunk, fields = redis.call('LRANGE', call.queue, first, first + 63), {}
    if #chunk == 0 then break end
    for at, ticket in ipairs(chunk) do fields[2 * at - 1], fields[2 * at] = ticket, client_of(ticket) end
    local found = redis.call('HMGET', call.waiting, unpack(fields))
    for at, ticket in ipairs(chunk) do
      local entry, client = found[2 * at - 1], found[2 * at]
      if entry and client and not seen[ticket] then
        local next = #list
        seen[ticket], list[next + 1], list[next + 2], list[next + 3] = true, ticket, entry, client
      end
    end
  end
  return list
end
