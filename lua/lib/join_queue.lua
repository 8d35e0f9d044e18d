-- join_queue(call, waiting, me): my ticket to the tail of K:queue; save_waiting writes the rest. Where that cannot be,
-- nothing has changed, and it returns the key that is not ours, or the error.
local function join_queue(call, waiting, me)
  if not waiting.last and redis.call('EXISTS', call.waiting) == 1 then return call.waiting end
  local life = queue_life(call) -- asked before anything is written: the list must not be left without a TTL
  local length = peek('RPUSH', call.queue, me.ticket)
  if not length then return call.queue end
  if waiting.living > 0 and length == 1 or not waiting.last and length > 1 then
    forget_queue(call, waiting)
    length = redis.call('RPUSH', call.queue, me.ticket)
  end
  waiting.life, waiting.length = life, length
  local done = redis.pcall('PEXPIRE', call.queue, waiting.life)
  if type(done) == 'table' then
    redis.call('LTRIM', call.queue, 0, -2)
    return done
  end
  add_ticket(call, waiting, me)
end
