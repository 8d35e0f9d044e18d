-- keep_lock(call, lock): holds were taken out: what is left lives as long as its longest lease.
local function keep_lock(call, lock)
  if lock.mode then redis.pcall('PEXPIRE', call.lock, int(lock.ends - call.now)) end
  if lock.mode == 'read' then redis.pcall('PEXPIRE', call.readers, int(lock.read_ends - call.now)) end
end
