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
    -- Each poll of each write telling each read would be quadratic: the first write does it; any other where that has
    -- not for a claim, since its client is silent, or polls by another of its tickets.
    local is_first = not call.blocked or call.blocked == me.ticket or not waiting.clients[client_of(call.blocked)]
    if me.mode == 'write' and not is_first and me.wait == '2' then
      is_first = tonumber(redis.call('HGET', call.lock, 'told_at') or 0) + call.claim < call.now
    end
    holders.tells = me.mode == 'write' and me.wait ~= '0' and is_first
    if holders.tells then
      local more
      holders.tickets, more = next_reads(call, me.queued)
      grant.more = math.max(grant.more, more)
    elseif call.deaf then
      holders.tickets = redis.call('ZRANGE', call.readers, 0, -1)
    end
  end
  return wait_behind(call, waiting, holders, me, grant.more)
end
