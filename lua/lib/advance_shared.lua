-- advance_shared(call, waiting, own): as advance, for a lock that reads share (call.shared, of read_shared and settle),
-- which is free or read-held: the run of reads at the head of the queue goes in together, or one write. A read that
-- the reply can reach goes in where no write waits before it.
local function advance_shared(call, waiting, own)
  if not own and waiting.living == 0 then return { more = 0 } end
  call.reading = call.shared.mode == 'read'
  call.stored = call.reading and call.shared.token or read_counter(call)
  if not call.stored then return { more = 0, foreign = call.counter } end
  -- A server that is out of memory must say so before anybody is told of a grant: this changes nothing.
  if waiting.living > 0 then redis.call('ZADD', call.readers, 'XX', 0, '') end
  local winner, is_limit, dead = walk_queue(call, waiting, own)
  local run = call.run
  -- A write before it may stand beyond the limit. Only where a further call would get no further it is let in.
  local is_in = winner or call.blocked or not own or is_limit and (not own.queued or dead + #run > 0)
  for _, read in ipairs(run) do is_in = is_in or read.is_own end
  if not is_in and own.mode == 'read' then
    run[#run + 1] = { ticket = own.ticket, hold = own, is_own = true }
  elseif not is_in and not call.reading then
    winner = own.ticket
  end
  if winner then return give(call, waiting, winner, own) end
  local grant = #run > 0 and let_in(call, waiting) or {}
  grant.more, grant.ends = is_limit and dead + #run > 0 and 1 or 0, call.shared.ends
  -- The reply with a grant has no room for it.
  if grant.ticket then pass_on(call, waiting, grant.more) end
  return grant
end
