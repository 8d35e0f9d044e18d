-- acquire(kind): the body of <kind>/acquire for the kinds that exclude everybody else.
local function acquire(kind)
  local call = open_call(kind)
  local me = read_request(ARGV[2], ARGV[3])
  me.wait = ARGV[5]
  -- A request that was stuck in a socket must not become a hold that nobody knows of.
  if call.now > tonumber(ARGV[4]) then return { 'stale', call.now } end
  local lock = read_lock(call)
  if not lock then return { 'foreign_key', call.now, call.lock } end
  local waiting = read_waiting(call, me.ticket)
  if not waiting then return { 'foreign_key', call.now, call.waiting } end
  local found = lock.kind or waiting.kind or kind
  if found ~= kind then return { 'kind_mismatch', call.now, found } end

  greet_client(call, waiting, me.ticket)
  if not lock.held then return take_turn(call, waiting, lock, me) end
  if lock.holds[me.ticket] or me.owner ~= '-' and me.owner == lock.owner then
    return enter_again(call, waiting, lock, me)
  end
  return wait_behind(call, waiting, lock, me, 0)
end
