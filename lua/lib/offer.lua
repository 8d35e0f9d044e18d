-- offer(call, waiting, ticket, entry, client): tells a waiting ticket that it has the lock now, and whether others
-- wait behind it: a read asks only for those that are to write. False where that message certainly reached nobody:
-- only a deaf client that has waited for long gets the lock unheard, and finds it by its polls.
local function offer(call, waiting, ticket, entry, client)
  local lease_end = call.now + math.min(call.claim, entry.lease)
  local behind = entry.mode == 'read' and waiting.writers or waiting.living - 1
  local others = behind > 0 and '1' or '0'
  local words = { 'grant', ticket, int(mint(call, entry.block)), int(lease_end), int(call.now), others }
  local heard = tell(call, ticket, table.concat(words, ' '))
  local is_reached = heard and (heard > 0 or not call.counted)
  return is_reached or client.deaf and call.now - entry.arrival > call.claim
end
