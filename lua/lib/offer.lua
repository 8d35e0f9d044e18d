-- offer(call, waiting, ticket, entry): tells a waiting ticket that it has the lock now, and whether others wait behind
-- it: a read asks only for those that are to write. Returns whether that message may have reached somebody.
local function offer(call, waiting, ticket, entry)
  local behind = entry.mode == 'read' and waiting.writers or waiting.living - 1
  local token, ends = mint(call, entry.block), call.now + math.min(call.claim, entry.lease)
  local others, said = behind > 0 and 1 or 0, call.said
  -- A run of reads is told the same, and each number takes as long to write as the rest of the message.
  if not said or said.token ~= token or said.ends ~= ends or said.others ~= others then
    local text = ' ' .. int(token) .. ' ' .. int(ends) .. ' ' .. int(call.now) .. ' ' .. int(others)
    said = { token = token, ends = ends, others = others, text = text }
    call.said = said
  end
  call.offers = call.offers + 1
  local heard = tell(call, ticket, 'grant ' .. ticket .. said.text)
  return heard and (heard > 0 or not call.counted)
end
