-- The usual cases of read_write/acquire, before anything else is defined, as in take_free: nobody holds the lock,
-- nobody waits, the counter is ours and behind the clock.
if now <= tonumber(ARGV[7]) and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
  local stored = redis.pcall('GET', KEYS[4])
  if type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored) < micros then
    local ticket, lease, hold = ARGV[2], ARGV[4], { mode = ARGV[9], owner = ARGV[3], block = ARGV[5], label = ARGV[6] }
    if hold.mode == 'write' then
      redis.call('INCRBY', KEYS[4], int(micros + hold.block - 1 - stored))
      local denied = write_lock({ kind = KIND, lock = KEYS[1], now = now }, ticket, hold, micros, lease)
      return denied or { 'granted', now, micros, tonumber(lease), 0 }
    elseif hold.owner == '-' then
      local ends = int(now + lease)
      redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', 'read', 'owner', '-', 'token', stored, 'block', 1,
        ticket, ends .. ' ' .. tail_of(hold))
      local done = redis.pcall('ZADD', KEYS[5], ends, ticket)
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[1], lease) end
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[5], lease) end
      if type(done) == 'number' then return { 'granted', now, tonumber(stored), tonumber(lease), 0 } end
      redis.call('DEL', KEYS[1], KEYS[5])
      return done
    end
  end
end
