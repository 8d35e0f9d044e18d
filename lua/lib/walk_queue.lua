-- walk_queue(call, waiting, own): from the head to the first ticket that can have the lock alone, or that the reads
-- before it keep out (call.blocked), over 256 entries at most, 128 that a message is sent to, and 64 that go in
-- together. Returns the former or nil; whether it stopped at the limit; how many dead entries it met.
local function walk_queue(call, waiting, own)
  local kept, front, walked, dead, size, winner, is_limit = {}, 0, 0, 0, 1, nil, false
  while not (winner or call.blocked or is_limit) and waiting.living > #kept + #call.run do
    local chunk = redis.call('LRANGE', call.queue, walked, walked + size - 1)
    if #chunk == 0 then break end
    look_up(call, waiting, chunk)
    for _, ticket in ipairs(chunk) do
      local verdict = judge(call, waiting, ticket, own)
      if verdict == 'blocked' then
        call.blocked = ticket
        break
      end
      walked = walked + 1
      is_limit = walked >= 256 or call.offers >= 128 or #call.run >= 64
      if verdict == 'kept' then
        kept[#kept + 1] = ticket
      else
        if #kept == 0 then front = front + 1 end
        if verdict == 'granted' then
          winner = ticket
          break
        end
        if verdict == 'dead' then dead = dead + 1 end
      end
      if is_limit then break end
    end
    size = math.min(64, 256 - walked)
  end
  trim_queue(call, walked, kept, front)
  local more = not winner and not call.blocked and waiting.living > #kept + #call.run
  if more and #kept == 0 and not is_limit then forget_queue(call, waiting) end
  return winner, more and is_limit, dead
end
