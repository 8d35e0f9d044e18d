-- leave(kind): the body of <kind>/leave for the kinds that exclude everybody else.
local function leave(kind)
  local call = open_call(kind)
  local now, ticket = call.now, ARGV[5]
  local lock = read_lock(call)
  if not lock then return { 'foreign_key', now, call.lock } end
  -- A release does not fail for a queue that is not ours.
  local waiting = read_waiting(call, ticket) or new_waiting()
  greet_client(call, waiting, ticket, ARGV[6] == '1')
  drop_ticket(waiting, ticket)
  if lock.kind ~= kind or not lock.holds[ticket] then
    local more = 0
    if not lock.held and waiting.kind == kind then
      redis.call('DEL', call.lock) -- allowed when memory is full, and what follows it then is too
      more = advance(call, waiting).more
    end
    save_waiting(call, waiting)
    return { 'gone', now, more }
  end

  lock.holds[ticket] = 0
  local ends = 0
  for _, other in ipairs(lock.tickets) do ends = math.max(ends, lock.holds[other]) end
  if ends > now then
    redis.call('HDEL', call.lock, ticket)
    redis.pcall('PEXPIRE', call.lock, int(ends - now))
    save_waiting(call, waiting)
    return { 'kept', now }
  end
  redis.call('DEL', call.lock)
  return hand_over(call, waiting, read_next(call))
end
