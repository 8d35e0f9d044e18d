-- give(call, waiting, winner, own): the lock to this ticket alone. Returns the grant as a table: `ticket`, `token`,
-- `lease`, `ends`; `denied`, the error where it could not be given a lease: the lock is free then.
local function give(call, waiting, winner, own)
  local is_own = own and own.ticket == winner
  local hold = is_own and own or waiting.entries[winner]
  local lease = is_own and own.lease or math.min(call.claim, hold.lease)
  local grant = { more = 0, ticket = winner, token = mint(call, hold.block), lease = lease, ends = call.now + lease }
  drop_ticket(waiting, winner)
  grant.denied = write_lock(call, winner, hold, grant.token, lease)
  if not is_own then
    -- A client that misses its claim is silent, and loses all its places at once.
    local client = touch_client(waiting, winner)
    client.deadline = math.min(client.deadline, grant.ends)
    if grant.denied then tell(call, winner, 'lost ' .. winner .. ' ' .. int(grant.token)) end
  end
  return grant
end
