-- wait_behind(call, waiting, lock, me, more): the lock is not mine: my place in its queue, or none. The holders,
-- lock.tickets, are told where lock.tells says so; without that, where I head the queue or this is a poll.
local function wait_behind(call, waiting, lock, me, more)
  local left = math.max(0, lock.ends - call.now)
  if me.wait == '0' then
    pass_on(call, waiting, more)
    save_waiting(call, waiting)
    return { 'busy', call.now, left }
  end
  local place, new = find_place(call, waiting, me.ticket), 0
  local sequence = place and waiting.entries[me.ticket].sequence
  if not place then
    local failed = join_queue(call, waiting, me)
    if type(failed) == 'string' then return { 'foreign_key', call.now, failed } end
    if failed then return failed end
    place, new, sequence = waiting.living, 1, waiting.last
  end
  save_waiting(call, waiting)
  rewrite_queue(call, waiting)
  local reply, client = { 'queued', call.now, place, left, new, more, sequence, waiting.living }, client_of(me.ticket)
  local tells = lock.tells or lock.tells == nil and (place == 1 or me.wait == '2')
  for _, ticket in ipairs(lock.tickets) do
    if tells then tell(call, ticket, 'held ' .. ticket) end
    if client_of(ticket) == client then reply[#reply + 1] = ticket end
  end
  return reply
end
