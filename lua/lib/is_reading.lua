-- is_reading(call, lock): whether the owner that read_shared was asked about has a read whose lease has not ended.
local function is_reading(call, lock)
  for ticket in (lock.reads or ''):gmatch('%S+') do
    if tonumber(redis.call('ZSCORE', call.readers, ticket) or 0) > call.now then return true end
  end
  return false
end
