-- walk_queue(call, waiting, own): from the head to the first ticket that can have the lock, over 256 entries at
-- most. Returns that ticket or nil; whether it stopped at the limit; how many dead entries it met.
local function walk_queue(call, waiting, own)
  local kept, front, walked, dead, size, winner = {}, 0, 0, 0, 1, nil
  while not winner and waiting.living > #kept and walked < 256 do
    local chunk = redis.call('LRANGE', call.queue, walked, walked + size - 1)
    if #chunk == 0 then break end
    look_up(call, waiting, chunk)
    for _, ticket in ipairs(chunk) do
      walked = walked + 1
      local verdict = judge(call, waiting, ticket, own)
      if verdict == 'kept' then
        kept[#kept + 1] = ticket
      else
        if #kept == 0 then front = front + 1 end
        if verdict == 'granted' then
          winner = ticket
          break
        end
        dead = dead + 1
      end
    end
    size = math.min(64, 256 - walked)
  end
  trim_queue(call, walked, kept, front)
  local is_lost = not winner and #kept == 0 and waiting.living > 0 and walked < 256
  if is_lost then forget_queue(call, waiting) end
  return winner, not winner and walked == 256 and waiting.living > #kept, dead
end
