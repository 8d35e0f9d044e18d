-- list_holds(call, lock): every hold as { ticket, left, owner, label }; nil where K:readers is not ours.
local function list_holds(call, lock)
  local readers, list = peek('ZRANGE', call.readers, 0, -1, 'WITHSCORES'), {}
  if not readers then return nil end
  for at = 1, #readers, 2 do
    local ticket = readers[at]
    if not lock.holds[ticket] then lock.tickets[#lock.tickets + 1], lock.tails[ticket] = ticket, '-' end
    lock.holds[ticket] = tonumber(readers[at + 1])
  end
  for _, ticket in ipairs(lock.tickets) do
    local owner, label = lock.tails[ticket]:match('^(%S+) ?(.*)$')
    list[#list + 1] = { ticket, math.max(0, lock.holds[ticket] - call.now), owner, label }
  end
  return list
end
