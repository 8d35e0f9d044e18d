-- read_holders(call, readers): K as in read_lock, as far as the end of its grant needs it: of many reads only the
-- tickets, which cost a tenth of what all that is known of them does.
local function read_holders(call, readers)
  if peek('HGET', call.lock, 'mode') ~= 'read' then return read_lock(call) end
  local found = redis.call('HMGET', call.lock, 'kind', 'token', 'block')
  local token, block, tickets = tonumber(found[2]), tonumber(found[3]), peek('ZRANGE', readers, 0, -1)
  if not (found[1] and token and block and tickets) then return nil end
  local last = tickets[#tickets]
  local held = last and tonumber(redis.call('ZSCORE', readers, last)) > call.now
  return { kind = found[1], token = token, block = block, tickets = tickets, held = held }
end
