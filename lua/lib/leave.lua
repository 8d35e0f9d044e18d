-- leave(kind): the body of <kind>/leave for the kinds that exclude everybody else. Whichever way it takes, its first
-- write is one that is allowed when memory is full, and then all that follow are too.
local function leave(kind)
  local call = open_call(kind)
  call.advance = advance
  local ticket, own = ARGV[2], read_next(call)
  local lock = read_lock(call)
  if not lock then return { 'foreign_key', call.now, call.lock } end
  -- A release does not fail for a queue that is not ours.
  local waiting = read_waiting(call, ticket) or new_waiting()
  greet_client(call, waiting, ticket)
  drop_ticket(waiting, ticket)
  if unheard then
    look_up(call, waiting, { unheard })
    waiting.clients[client_of(unheard)].unreachable, call.offers = true, 1
  end
  if unheard or lock.kind == kind and lock.holds[ticket] then
    if unheard or not drop_hold(call, lock, ticket) then return hand_over(call, waiting, own) end
    save_waiting(call, waiting)
    return { 'kept', call.now }
  end
  local more = 0
  if not lock.held and waiting.kind == kind then
    redis.call('DEL', call.lock)
    more = advance(call, waiting).more
  end
  save_waiting(call, waiting)
  return { 'gone', call.now, more }
end
