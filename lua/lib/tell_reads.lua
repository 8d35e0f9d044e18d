-- tell_reads(call, but): all reads inside are told that somebody is to write, but for this ticket.
local function tell_reads(call, but)
  for _, ticket in ipairs(redis.call('ZRANGE', call.readers, 0, -1)) do
    if ticket ~= but then tell(call, ticket, 'held ' .. ticket) end
  end
end
