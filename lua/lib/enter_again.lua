-- enter_again(call, waiting, lock, me): the lock is held by my ticket or my owner: my hold is added, or lengthened.
local function enter_again(call, waiting, lock, me)
  local ends = math.max(lock.holds[me.ticket] or 0, call.now + me.lease)
  local done = redis.pcall('PEXPIRE', call.lock, int(math.max(ends, lock.ends) - call.now))
  if type(done) == 'table' then return done end
  redis.call('HSET', call.lock, me.ticket, int(ends) .. ' ' .. me.tail)
  -- Its entry, too: should this hold be lost before its client hears of it, the ticket joins anew, at the tail.
  if waiting.entries[me.ticket] then redis.pcall('LREM', call.queue, 1, me.ticket) end
  drop_ticket(waiting, me.ticket)
  save_waiting(call, waiting)
  return { 'granted', call.now, lock.token, ends - call.now, waiting.living > 0 and 1 or 0 }
end
