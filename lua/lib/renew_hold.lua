-- renew_hold(deadline, keys, ticket, lease): one hold lives on. Returns what is left of its lease, -1 where it
-- is lost, and whether somebody waits: a read is told of those only that are to write. The TTL comes first: it may be
-- written when memory is full, and what follows it then may be too.
local function renew_hold(deadline, keys, ticket, lease)
  local id = client_of(ticket)
  local found = peek('HMGET', keys.waiting, 'queue', id) or {}
  local client = read_client(found[2])
  if client then
    redis.call('PEXPIRE', keys.waiting, int(math.max(redis.call('PTTL', keys.waiting), deadline + 10000)))
    local deaf = client.deaf and ' deaf' or ''
    redis.call('HSET', keys.waiting, id, int(now + deadline) .. ' ' .. int(client.living) .. deaf)
  end

  local held = peek('HMGET', keys.lock, 'kind', 'mode', ticket) or {}
  local lease_end, tail = (held[3] or ''):match('^(%d+)( .+)$')
  local read_end = (held[1] == 'read_write' or not held[1]) and peek('ZSCORE', keys.readers, ticket)
  local living, writers = (found[1] or ''):match('^%S+ %d+ (%d+) ?(%d*)$')
  local waits = (tonumber(read_end and writers or living) or 0) > 0 and 1 or 0
  -- Of the two keys that know of a read K:readers is the one that counts: K, where it is lost, is written again without
  -- what it knew of this one.
  if read_end then lease_end, tail = read_end, tail or ' -' end
  local mode = held[2]
  if mode == 'write' and tail and not read_end then
    -- Under its owner's write only that owner's list of reads tells it from a write.
    local reads = redis.call('HGET', keys.lock, 'reader:' .. tail:match('%S+')) or ''
    if (' ' .. reads .. ' '):find(' ' .. ticket .. ' ', 1, true) then mode = 'read' end
  end
  if mode == 'read' and not read_end then lease_end = nil end
  if not lease_end or tonumber(lease_end) <= now then return -1, waits end
  local ends = math.max(tonumber(lease_end), now + lease)
  if held[1] then
    redis.call('PEXPIRE', keys.lock, int(math.max(redis.call('PTTL', keys.lock), ends - now)))
    redis.call('HSET', keys.lock, ticket, int(ends) .. tail)
  end
  if read_end then
    redis.call('PEXPIRE', keys.readers, int(math.max(redis.call('PTTL', keys.readers), ends - now)))
    redis.call('ZADD', keys.readers, 'XX', int(ends), ticket)
  end
  return ends - now, waits
end
