-- The usual case of acquire, before anything else is defined, for that alone would cost half as much: nobody holds the
-- lock, nobody waits, the counter is ours and behind the clock. Everything else goes on below, with nothing changed.
if now <= tonumber(ARGV[10]) and redis.call('EXISTS', KEYS[1], KEYS[3]) == 0 then
  local stored = redis.pcall('GET', KEYS[4])
  if type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored) < micros then
    -- Half the price of SET with KEEPTTL.
    redis.call('INCRBY', KEYS[4], int(micros + ARGV[8] - 1 - stored))
    local hold = { mode = 'exclusive', owner = ARGV[6], block = ARGV[8], label = ARGV[9] }
    local denied = write_lock({ kind = KIND, lock = KEYS[1], now = now }, ARGV[5], hold, micros, ARGV[7])
    return denied or { 'granted', now, micros, tonumber(ARGV[7]), 0 }
  end
end
