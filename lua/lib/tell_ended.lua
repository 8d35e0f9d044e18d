-- tell_ended(call, ended, tickets): these reads of K:ended, which also says of which `version` they were, hear that
-- they are lost; but for those that have asked again, and are inside anew. Returns 1 where others are left, else 0.
local function tell_ended(call, ended, tickets)
  local version, inside = redis.call('ZSCORE', ended, 'version'), redis.call('HMGET', call.lock, unpack(tickets))
  redis.call('ZREM', ended, unpack(tickets))
  for at, ticket in ipairs(tickets) do
    if ticket ~= 'version' and not inside[at] then tell(call, ticket, 'lost ' .. ticket .. ' ' .. (version or 0)) end
  end
  return redis.call('EXISTS', ended)
end
