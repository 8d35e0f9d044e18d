-- restore_reads(call, lock): K was lost while reads were inside: it is written again, and says so, without them, for
-- there may be many: K:readers tells of them what counts. Their owners and labels nobody knows any more. Returns the
-- error where it cannot be given a lease: it is gone again then.
local function restore_reads(call, lock)
  call.stored = read_counter(call)
  lock.kind, lock.mode, lock.owner, lock.block = call.kind, 'read', '-', 1
  lock.token = call.stored and mint(call, 0) or call.micros
  redis.call('HSET', call.lock, 'kind', call.kind, 'mode', 'read', 'owner', '-', 'token', int(lock.token),
    'block', 1, 'restored', 1)
  local denied = keep_reads(call, lock)
  if denied then redis.call('DEL', call.lock) end
  return denied
end
