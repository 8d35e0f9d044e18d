-- leave_reads(call, lock): the last of lock.writes, of a write-held lock, is over, and all of them go. Where their
-- owner reads, K is read-held now, and whoever reads from here on shows the write's second token.
local function leave_reads(call, lock)
  lock.token, lock.block, lock.mode, lock.ends = lock.token + lock.block - 1, 1, 'read', lock.read_ends
  if lock.read_ends <= call.now then return end
  if #lock.writes > 0 then redis.call('HDEL', call.lock, unpack(lock.writes)) end
  redis.call('HSET', call.lock, 'mode', 'read', 'owner', '-', 'token', int(lock.token), 'block', 1)
  redis.pcall('PEXPIRE', call.lock, int(lock.ends - call.now))
  lock.was_write = true
end
