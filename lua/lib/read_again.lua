-- read_again(call, waiting, lock, me): my ticket or my owner is inside: my read is added, whoever waits, or lengthened.
local function read_again(call, waiting, lock, me)
  me.lease = math.max(me.lease, lock.mine - call.now)
  call.run = { { ticket = me.ticket, hold = me, is_own = true } }
  -- Its entry, too, as in enter_again.
  if waiting.entries[me.ticket] then redis.pcall('LREM', call.queue, 1, me.ticket) end
  local grant = let_in(call, waiting)
  save_waiting(call, waiting)
  return grant.denied or { 'granted', call.now, grant.token, grant.lease, others_wait(waiting, 'read') }
end
