-- judge(call, waiting, ticket, own): what becomes of an entry of the queue when the lock is free: 'dead', 'kept' or
-- 'granted'. `own` is the ticket that this call's reply can reach.
local function judge(call, waiting, ticket, own)
  local entry, client = waiting.entries[ticket], waiting.clients[client_of(ticket)]
  if not entry or entry.kept then return 'dead' end
  if not client or client.deadline <= call.now then
    drop_ticket(waiting, ticket)
    return 'dead'
  end
  if own and own.ticket == ticket then return 'granted' end
  if not client.unreachable and offer(call, waiting, ticket, entry, client) then return 'granted' end
  client.unreachable, entry.kept = true, true
  return 'kept'
end
