-- tell_ended(call, ended, tickets): these reads of K:ended hear that they are lost. Returns 1 where others are left,
-- else 0.
local function tell_ended(call, ended, tickets)
  redis.call('ZREM', ended, unpack(tickets))
  for _, ticket in ipairs(tickets) do tell(call, ticket, 'lost ' .. ticket .. ' ' .. ARGV[5]) end
  return redis.call('EXISTS', ended)
end
