-- keep_reads(call, lock): K and K:readers live as long as their longest lease. Returns the error where that is denied.
local function keep_reads(call, lock)
  local done = redis.pcall('PEXPIRE', call.lock, int(lock.ends - call.now))
  if type(done) == 'table' then return done end
  done = redis.pcall('PEXPIRE', call.readers, int(lock.read_ends - call.now))
  return type(done) == 'table' and done or nil
end
