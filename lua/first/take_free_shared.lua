-- The usual cases of read_write/acquire, before anything else is defined, as in take_free: nobody holds the lock,
-- nobody waits, the counter is ours and behind the clock.
if now <= tonumber(ARGV[4]) and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
  local mode, lease, block, tail, owner = ARGV[3]:match('^(%S+) (%d+) (%d+) ((%S+).*)$')
  local stored = redis.pcall('GET', KEYS[4])
  if type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored) < micros then
    local granted = 'granted ' .. int(now) .. ' '
    if mode == 'write' then
      redis.call('INCRBY', KEYS[4], int(micros + block - 1 - stored))
      local hold = { mode = mode, owner = owner, block = block, tail = tail }
      local denied = write_lock({ kind = KIND, lock = KEYS[1], now = now }, ARGV[2], hold, micros, lease)
      return denied or granted .. int(micros) .. ' ' .. lease .. ' 0'
    elseif mode == 'read' and owner == '-' then
      local ends = int(now + lease)
      redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', mode, 'owner', owner, 'token', stored, 'block', 1,
        ARGV[2], ends .. ' ' .. tail)
      local done = redis.pcall('ZADD', KEYS[5], ends, ARGV[2])
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[1], lease) end
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[5], lease) end
      if type(done) == 'number' then return granted .. stored .. ' ' .. lease .. ' 0' end
      redis.call('DEL', KEYS[1], KEYS[5])
      return done
    end
  end
end
