-- share_turn(call, waiting, lock, me): the lock is free, or read-held: it is mine, unless I am to wait for a ticket
-- before me, or for reads.
local function share_turn(call, waiting, lock, me)
  me.queued = waiting.entries[me.ticket]
  local grant = advance_shared(call, waiting, me)
  if grant.foreign then return { 'foreign_key', call.now, grant.foreign } end
  if grant.denied or grant.ticket == me.ticket then
    save_waiting(call, waiting)
    return grant.denied or { 'granted', call.now, grant.token, grant.lease, others_wait(waiting, me.mode) }
  end
  local holders = { tickets = { grant.ticket }, ends = grant.ends }
  if lock.mode == 'read' then
    -- Each poll of each write telling each read would be quadratic: the first write does it, for as long as its client
    -- calls.
    local first = call.blocked and call.blocked ~= me.ticket and waiting.clients[client_of(call.blocked)]
    local is_silent = me.wait == '2' and first and first.deadline - call.deadline + call.claim < call.now
    holders.tells = me.mode == 'write' and me.wait ~= '0' and (not first or is_silent) or false
    if holders.tells then
      local more
      holders.tickets, more = next_reads(call, me.queued)
      grant.more = math.max(grant.more, more)
    elseif me.deaf then
      holders.tickets = redis.call('ZRANGE', call.readers, 0, -1)
    end
  end
  return wait_behind(call, waiting, holders, me, grant.more)
end
