-- list_holds(call, lock): the holds as { ticket, left, owner, label }, of reads the first 256 whose leases end, and how
-- many there are; nil where K:readers is not ours.
local function list_holds(call, lock)
  local readers, list, count = peek('ZRANGE', call.readers, 0, 255, 'WITHSCORES'), {}, #lock.tickets
  if not readers then return nil end
  local tickets, ends, tails = lock.tickets, lock.holds, lock.tails
  if #readers > 0 and lock.mode ~= 'write' then
    tickets, ends, tails, count = {}, {}, {}, redis.call('ZCARD', call.readers)
    for at = 1, #readers, 2 do
      tickets[#tickets + 1], ends[readers[at]] = readers[at], tonumber(readers[at + 1])
    end
    for at, text in ipairs(redis.call('HMGET', call.lock, unpack(tickets))) do
      tails[tickets[at]] = (text or ''):match('^%d+ (.+)$')
    end
  end
  for _, ticket in ipairs(tickets) do
    local owner, label = (tails[ticket] or '-'):match('^(%S+) ?(.*)$')
    list[#list + 1] = { ticket, math.max(0, ends[ticket] - call.now), owner, label }
  end
  return list, count
end
