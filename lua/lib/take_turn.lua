-- take_turn(call, waiting, lock, me): the lock is free: it is mine, unless a living ticket before me gets it.
local function take_turn(call, waiting, lock, me)
  me.queued = waiting.entries[me.ticket]
  if lock.kind then redis.call('DEL', call.lock) end
  local grant = advance(call, waiting, me)
  if grant.foreign then return { 'foreign_key', call.now, grant.foreign } end
  if grant.denied or grant.ticket == me.ticket then
    save_waiting(call, waiting)
    return grant.denied or { 'granted', call.now, grant.token, grant.lease, waiting.living > 0 and 1 or 0 }
  end
  return wait_behind(call, waiting, { tickets = { grant.ticket }, ends = grant.ends or 0 }, me, grant.more)
end
