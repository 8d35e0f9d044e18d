-- The usual case of acquire, before anything else is defined, for that alone would cost half as much: nobody holds the
-- lock, nobody waits, the counter is ours and behind the clock. Everything else goes on below, with nothing changed. It
-- writes what write_lock does, without its table, and makes no text of a number that it has as one.
if now <= tonumber(ARGV[7]) and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local stored = redis.pcall('GET', KEYS[4])
  local last = type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored)
  if last and last < micros then
    -- Half the price of SET with KEEPTTL.
    redis.call('INCRBY', KEYS[4], int(micros + ARGV[5] - 1 - last))
    redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', 'exclusive', 'owner', ARGV[3],
      'token', time[1] .. ('00000' .. time[2]):sub(-6), 'block', ARGV[5],
      ARGV[2], int(now + ARGV[4]) .. ' ' .. (ARGV[6] == '' and ARGV[3] or ARGV[3] .. ' ' .. ARGV[6]))
    local done = redis.pcall('PEXPIRE', KEYS[1], ARGV[4])
    if type(done) ~= 'table' then return { 'granted', now, micros, tonumber(ARGV[4]), 0 } end
    redis.call('DEL', KEYS[1])
    return done
  end
end
