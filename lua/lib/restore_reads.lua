-- restore_reads(call, lock): K was lost while reads were inside: it is written again from K:readers, without owners
-- and labels, which nobody knows any more.
local function restore_reads(call, lock)
  call.stored = read_counter(call)
  lock.kind, lock.mode, lock.owner, lock.block = call.kind, 'read', '-', 1
  lock.token = call.stored and mint(call, 0) or call.micros
  local reads = redis.call('ZRANGE', call.readers, 0, -1, 'WITHSCORES')
  for first = 1, #reads, 1000 do
    local fields = {}
    for at = first, math.min(first + 998, #reads - 1), 2 do
      fields[#fields + 1] = reads[at]
      fields[#fields + 1] = reads[at + 1] .. ' -'
    end
    redis.call('HSET', call.lock, 'kind', call.kind, 'mode', 'read', 'owner', '-', 'token', int(lock.token),
      'block', 1, unpack(fields))
  end
  keep_reads(call, lock)
end
