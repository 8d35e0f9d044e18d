-- judge(call, waiting, ticket, own): what becomes of an entry of the queue when the lock is free, or reads are inside
-- (call.reading): 'dead', 'kept', 'granted'; 'let_in' for a read, which is in call.run then; 'blocked' for a write that
-- reads keep out. `own` is the ticket that this call's reply can reach.
local function judge(call, waiting, ticket, own)
  local entry, client = waiting.entries[ticket], waiting.clients[client_of(ticket)]
  if not entry or entry.met then return 'dead' end
  if not client or client.deadline <= call.now then
    drop_ticket(waiting, ticket)
    return 'dead'
  end
  entry = entry_of(waiting, ticket)
  if not entry then return 'dead' end
  if entry.mode == 'write' and call.reading then return 'blocked' end
  local is_own = own and own.ticket == ticket
  local is_told = is_own or not client.unreachable and offer(call, waiting, ticket, entry)
  -- Only a deaf client that has waited for long gets the lock unheard, and finds it by its polls. (A ghost of a younger
  -- ticket, in front of it by an older entry, has not.)
  if is_told or client.deaf and call.now - entry.arrival > call.claim then
    if entry.mode ~= 'read' then return 'granted' end
    entry.met, call.reading = true, true
    call.run[#call.run + 1] = { ticket = ticket, hold = is_own and own or entry, is_own = is_own }
    return 'let_in'
  end
  client.unreachable, entry.met = true, true
  return 'kept'
end
