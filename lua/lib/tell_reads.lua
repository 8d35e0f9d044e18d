-- tell_reads(call, waiting, lock, but): where a write has left reads behind in this call, and another write waits, they
-- are told, but for this ticket.
local function tell_reads(call, waiting, lock, but)
  if not lock.was_write or waiting.writers == 0 then return end
  for _, ticket in ipairs(redis.call('ZRANGE', call.readers, 0, -1)) do
    if ticket ~= but then tell(call, ticket, 'held ' .. ticket) end
  end
end
