-- rewrite_queue(call, waiting): K:queue, which a ticket has just joined, anew of its living tickets alone, where it has
-- more than 1,000 dead entries and more dead than living.
local function rewrite_queue(call, waiting)
  local dead = (waiting.length or 0) - waiting.living
  if dead <= 1000 or dead <= waiting.living then return end
  local list, kept, seen = redis.call('LRANGE', call.queue, 0, -1), {}, {}
  for first = 1, #list, 256 do
    local last = math.min(first + 255, #list)
    local found = redis.call('HMGET', call.waiting, unpack(list, first, last))
    for at = first, last do
      if found[at - first + 1] and not seen[list[at]] then
        seen[list[at]] = true
        kept[#kept + 1] = list[at]
      end
    end
  end
  redis.call('DEL', call.queue)
  for first = 1, #kept, 256 do
    redis.call('RPUSH', call.queue, unpack(kept, first, math.min(first + 255, #kept)))
  end
  redis.call('PEXPIRE', call.queue, waiting.life)
end
