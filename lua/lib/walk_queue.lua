-- walk_queue(call, waiting, own): from the head to the first ticket that can have the lock alone, or that the reads
-- before it keep out (call.blocked), over 256 entries at most, and 128 that go in together: each of those costs a
-- message. Returns the former or nil; whether it stopped at the limit; how many dead entries it met.
local function walk_queue(call, waiting, own)
  local kept, front, walked, dead, size, winner = {}, 0, 0, 0, 1, nil
  while not winner and not call.blocked and waiting.living > #kept + #call.run and walked < 256 and #call.run < 128 do
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
      if verdict == 'kept' then
        kept[#kept + 1] = ticket
      else
        if #kept == 0 then front = front + 1 end
        if verdict == 'granted' then
          winner = ticket
          break
        end
        if verdict == 'dead' then dead = dead + 1 end
        if #call.run == 128 then break end
      end
    end
    size = math.min(64, 256 - walked)
  end
  trim_queue(call, walked, kept, front)
  local more = not winner and not call.blocked and waiting.living > #kept + #call.run
  local is_limit = walked == 256 or #call.run == 128
  if more and #kept == 0 and not is_limit then forget_queue(call, waiting) end
  return winner, more and is_limit, dead
end
