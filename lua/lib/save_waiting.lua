-- save_waiting(call, waiting): writes what this call has changed in K:waiting; with the last living ticket both keys
-- go. The TTL comes first: it may be written when memory is full, and what follows it then may be too.
local function save_waiting(call, waiting)
  if #waiting.touched == 0 and #waiting.gone == 0 then return end
  if waiting.living < 1 then
    redis.call('DEL', call.queue, call.waiting)
    return
  end
  if waiting.greeted and not waiting.life then
    waiting.life = queue_life(call)
    redis.pcall('PEXPIRE', call.queue, waiting.life)
  end
  local kept = waiting.life and redis.pcall('PEXPIRE', call.waiting, waiting.life)
  write_waiting(call, waiting)
  if kept == 0 then redis.pcall('PEXPIRE', call.waiting, waiting.life) end
end
