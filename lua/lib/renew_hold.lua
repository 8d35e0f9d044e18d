-- renew_hold(deadline, keys, ticket, lease): one hold lives on. Returns what is left of its lease, -1 where it
-- is lost, and whether somebody waits. The TTL comes first: it may be written when memory is full, and what
-- follows it then may be too.
local function renew_hold(deadline, keys, ticket, lease)
  local id, waits = client_of(ticket), 0
  local found = peek('HMGET', keys.waiting, 'queue', id) or {}
  local client = read_client(found[2])
  if client then
    redis.call('PEXPIRE', keys.waiting, int(math.max(redis.call('PTTL', keys.waiting), deadline + 10000)))
    local deaf = client.deaf and ' deaf' or ''
    redis.call('HSET', keys.waiting, id, int(now + deadline) .. ' ' .. int(client.living) .. deaf)
  end
  if found[1] and not found[1]:find(' 0$') then waits = 1 end

  local held = peek('HMGET', keys.lock, 'kind', ticket) or {}
  local lease_end, tail = (held[2] or ''):match('^(%d+)( .+)$')
  if not lease_end or tonumber(lease_end) <= now then return -1, waits end
  local ends = math.max(tonumber(lease_end), now + lease)
  redis.call('PEXPIRE', keys.lock, int(math.max(redis.call('PTTL', keys.lock), ends - now)))
  redis.call('HSET', keys.lock, ticket, int(ends) .. tail)
  if held[1] == 'read_write' and redis.call('ZSCORE', keys.readers, ticket) then
    redis.call('PEXPIRE', keys.readers, int(math.max(redis.call('PTTL', keys.readers), ends - now)))
    redis.call('ZADD', keys.readers, 'XX', int(ends), ticket)
  end
  return ends - now, waits
end
