-- let_in(call, waiting): the reads of call.run have a hold each now, beside those that are inside already: reads, or
-- writes of the same owner. Returns the grant of the read that the reply can reach, and `denied`, the error where K
-- cannot be given a TTL: nobody was let in then.
local function let_in(call, waiting)
  local lock, run, tickets, scores, longest, grant = call.shared, call.run, {}, {}, 0, {}
  local fields = add_owners(call, run)
  local version = lock.mode and lock.token or mint(call, 0)
  local known, text = nil, nil
  for at, read in ipairs(run) do
    local ticket, hold, lease = read.ticket, read.hold, read.hold.lease
    local client = drop_ticket(waiting, ticket)
    if read.is_own then
      grant = { ticket = ticket, token = version, lease = lease }
    else
      lease = math.min(call.claim, lease)
      if client then client.deadline = math.min(client.deadline, call.now + lease) end
    end
    longest = math.max(longest, call.now + lease)
    -- Mostly it is the same as the last one, and takes as long to write as all else.
    if lease ~= known then known, text = lease, int(call.now + lease) end
    tickets[at] = ticket
    scores[2 * at - 1], scores[2 * at] = text, ticket
    fields[#fields + 1] = ticket
    fields[#fields + 1] = text .. ' ' .. hold.tail
  end
  redis.call('ZADD', call.readers, unpack(scores))
  if lock.mode then
    redis.call('HSET', call.lock, unpack(fields))
  else
    redis.call('HSET', call.lock, 'kind', call.kind, 'mode', 'read', 'owner', '-', 'token', int(version), 'block', 1,
      unpack(fields))
  end
  lock.read_ends, lock.ends = math.max(lock.read_ends, longest), math.max(lock.ends, longest)
  grant.denied = keep_reads(call, lock)
  if grant.denied then
    drop_reads(call, tickets)
    if not lock.mode then redis.call('DEL', call.lock) end
    for _, read in ipairs(run) do
      if not read.is_own then tell(call, read.ticket, 'lost ' .. read.ticket .. ' ' .. int(version)) end
    end
  elseif not lock.mode then
    lock.mode, lock.token = 'read', version
  end
  return grant
end
