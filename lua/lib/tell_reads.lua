-- tell_reads(call, but): the first of the reads inside are told that somebody is to write, but not this ticket. Returns
-- 1 where the next call of who is to write is to go on, else 0.
local function tell_reads(call, but)
  local reads, more = next_reads(call)
  for _, ticket in ipairs(reads) do
    if ticket ~= but then tell(call, ticket, 'held ' .. ticket) end
  end
  return more
end
