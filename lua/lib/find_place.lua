-- find_place(call, waiting, ticket): at most how many tickets there are up to this one; nil where it does not wait.
-- Dead entries at the head are trimmed on the way, 65 at most.
local function find_place(call, waiting, ticket)
  local mine = waiting.entries[ticket]
  if not mine then return nil end
  local dead, size, head = 0, 1, nil
  while not head and dead < 65 do
    local chunk = redis.call('LRANGE', call.queue, dead, dead + size - 1)
    if #chunk == 0 then return forget_queue(call, waiting) end
    look_up(call, waiting, chunk)
    for _, first in ipairs(chunk) do
      head = entry_of(waiting, first)
      if head then break end
      dead = dead + 1
    end
    size = 64
  end
  if dead > 0 then redis.call('LTRIM', call.queue, dead, -1) end
  local place = head and mine.sequence - head.sequence + 1 or waiting.living
  return math.max(1, math.min(place, waiting.living))
end
