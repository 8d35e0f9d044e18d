-- The usual cases of read_write/acquire, before anything else is defined, as in take_free: nobody holds the lock,
-- nobody waits, the counter is ours and behind the clock.
if now <= tonumber(ARGV[4]) and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
  local me, stored = read_request(ARGV[2], ARGV[3]), redis.pcall('GET', KEYS[4])
  if type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored) < micros then
    local lease = int(me.lease)
    if me.mode == 'write' then
      redis.call('INCRBY', KEYS[4], int(micros + me.block - 1 - stored))
      local denied = write_lock({ kind = KIND, lock = KEYS[1], now = now }, me.ticket, me, micros, lease)
      return denied or 'granted ' .. int(now) .. ' ' .. int(micros) .. ' ' .. lease .. ' 0'
    elseif me.owner == '-' then
      local ends = int(now + lease)
      redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', 'read', 'owner', '-', 'token', stored, 'block', 1,
        me.ticket, ends .. ' ' .. me.tail)
      local done = redis.pcall('ZADD', KEYS[5], ends, me.ticket)
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[1], lease) end
      if type(done) == 'number' then done = redis.pcall('PEXPIRE', KEYS[5], lease) end
      if type(done) == 'number' then return 'granted ' .. int(now) .. ' ' .. stored .. ' ' .. lease .. ' 0' end
      redis.call('DEL', KEYS[1], KEYS[5])
      return done
    end
  end
end
