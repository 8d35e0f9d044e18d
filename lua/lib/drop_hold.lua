-- drop_hold(call, lock, ticket): the hold is no more. Returns whether K is kept by its owner's other holds, of which
-- it ends with the longest; where all their leases have ended, K goes too.
local function drop_hold(call, lock, ticket)
  local ends = 0
  for _, other in ipairs(lock.tickets) do
    if other ~= ticket then ends = math.max(ends, lock.holds[other]) end
  end
  if ends <= call.now then
    redis.call('DEL', call.lock)
    return false
  end
  redis.call('HDEL', call.lock, ticket)
  redis.pcall('PEXPIRE', call.lock, int(ends - call.now))
  return true
end
