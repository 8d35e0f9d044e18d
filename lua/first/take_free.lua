-- The usual case of acquire, before anything else is defined, for that alone would cost half as much: nobody holds the
-- lock, nobody waits, the counter is ours and behind the clock. Everything else goes on below, with nothing changed. It
-- writes what write_lock does, without its table, and makes no text of a number that it has as one. Its reply is one
-- text: five items take both sides longer to write and to read.
if now <= tonumber(ARGV[4]) and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local lease, block, tail, owner = ARGV[3]:match('^exclusive (%d+) (%d+) ((%S+).*)$')
  local stored = redis.pcall('GET', KEYS[4])
  local last = type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored)
  if lease and last and last < micros then
    local token = time[1] .. ('00000' .. time[2]):sub(-6)
    -- Half the price of SET with KEEPTTL.
    redis.call('INCRBY', KEYS[4], int(micros + block - 1 - last))
    redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', 'exclusive', 'owner', owner, 'token', token, 'block', block,
      ARGV[2], int(now + lease) .. ' ' .. tail)
    local done = redis.pcall('PEXPIRE', KEYS[1], lease)
    if type(done) ~= 'table' then return 'granted ' .. token:sub(1, -4) .. ' ' .. token .. ' ' .. lease .. ' 0' end
    redis.call('DEL', KEYS[1])
    return done
  end
end
