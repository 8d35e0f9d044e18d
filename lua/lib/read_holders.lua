-- read_holders(call, readers): K as in read_lock; where it is read-held, and many may be inside, without its holds.
local function read_holders(call, readers)
  if peek('HGET', call.lock, 'mode') ~= 'read' then return read_lock(call) end
  local found = redis.call('HMGET', call.lock, 'kind', 'token', 'block')
  local token, block, last = tonumber(found[2]), tonumber(found[3]), peek('ZRANGE', readers, -1, -1, 'WITHSCORES')
  if not (found[1] and token and block and last) then return nil end
  local held = tonumber(last[2] or 0) > call.now
  return { kind = found[1], mode = 'read', token = token, block = block, tickets = {}, holds = {}, held = held }
end
