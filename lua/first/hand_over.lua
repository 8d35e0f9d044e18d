-- The usual case of leave where somebody waits, before most functions are defined (`is_plain` is of free, which
-- stands before the clock): the first waiting ticket hears that it has the lock, which is handed over as give and
-- save_waiting do it. Where it did not hear that, and is `unheard` then, the hold is no more, and the rest goes on
-- below, as does all else with nothing changed.
local unheard
if is_plain then
  local head = redis.pcall('LRANGE', KEYS[2], 0, 0)[1]
  local mine, its = ARGV[2]:sub(1, 36), (head or ''):sub(1, 36)
  local found = head and redis.pcall('HMGET', KEYS[3], 'queue', head, its, mine, ARGV[2]) or {}
  local last, living = (found[1] or ''):match('^' .. KIND .. ' (%d+) (%d+)$')
  local mode, lease, block, tail = (found[2] or ''):match('^%d+ %d+ (%S+) (%d+) (%d+) (.+)$')
  local deadline, places = (found[3] or ''):match('^(%d+) (%d+)$')
  local my_places = (found[4] or ''):match('^%d+ (%d+)')
  local claim, silence, counted = ARGV[1]:match('^(%d+) (%d+) 0 ([01]) 0$')
  local stored = redis.pcall('GET', KEYS[4])
  stored = type(stored) == 'string' and stored:find('^[1-9]%d*$') and tonumber(stored)
  if last and mode and deadline and tonumber(deadline) > now and not found[5] and claim and stored
    and stored < micros then
    lease = math.min(tonumber(lease), math.max(50, math.min(60000, tonumber(claim))))
    silence = math.max(200, math.min(600000, tonumber(silence)))
    local token, ends = time[1] .. ('00000' .. time[2]):sub(-6), int(now + lease)
    local life = my_places and math.max(redis.call('PTTL', KEYS[3]), silence + 10000)
    -- First of all the write that makes the release. It is allowed when memory is full, and then all that follow are.
    redis.call('DEL', KEYS[1])
    -- Minted before anybody is told.
    redis.call('INCRBY', KEYS[4], int(micros + block - 1 - stored))
    local channel, signature = KEYS[1]:match('^(.-):{') .. ':wake:' .. its, ' ' .. KIND .. ' ' .. KEYS[1]
    local heard = redis.pcall('PUBLISH', channel, 'grant ' .. head .. ' ' .. token .. ' ' .. ends .. ' '
      .. token:sub(1, -4) .. (living == '1' and ' 0' or ' 1') .. signature)
    if type(heard) == 'number' and (heard > 0 or counted == '0') then
      redis.pcall('LTRIM', KEYS[2], 1, -1)
      redis.call('HSET', KEYS[1], 'kind', KIND, 'mode', mode, 'owner', tail:match('^%S+'), 'token', token,
        'block', block, head, ends .. ' ' .. tail)
      if type(redis.pcall('PEXPIRE', KEYS[1], int(lease))) == 'table' then
        redis.call('DEL', KEYS[1])
        redis.pcall('PUBLISH', channel, 'lost ' .. head .. ' ' .. token .. signature)
      end
      if living == '1' then
        redis.call('DEL', KEYS[2], KEYS[3])
        return 'freed ' .. token:sub(1, -4) .. ' 0 none'
      end
      if my_places then
        redis.pcall('PEXPIRE', KEYS[2], int(life))
        redis.pcall('PEXPIRE', KEYS[3], int(life))
      end
      local greeted = int(now + silence)
      deadline = mine == its and greeted or deadline
      if tonumber(deadline) > now + lease then deadline = ends end
      local set = { 'queue', KIND .. ' ' .. last .. ' ' .. int(living - 1) }
      if my_places and mine ~= its then set[3], set[4] = mine, greeted .. ' ' .. my_places end
      if places == '1' then
        redis.call('HDEL', KEYS[3], head, its)
      else
        redis.call('HDEL', KEYS[3], head)
        set[#set + 1], set[#set + 2] = its, deadline .. ' ' .. int(places - 1)
      end
      redis.call('HSET', KEYS[3], unpack(set))
      return 'freed ' .. token:sub(1, -4) .. ' 0 none'
    end
    unheard = head
  end
end
