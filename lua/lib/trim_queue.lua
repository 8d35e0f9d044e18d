-- trim_queue(call, walked, kept, front): takes the walked part out of the list, save the kept tickets, which stay at
-- its head in their order: no entry is walked over for ever, and none stays that a ticket which missed its claim or
-- its deadline would find again when it joins anew, to be served before those who had come meanwhile. `front` is how
-- many stand before the first kept one. Somebody may have been told of a grant by now, which must be written: a list
-- that may not be trimmed keeps its dead entries.
local function trim_queue(call, walked, kept, front)
  local is_worth = walked - front > #kept
  if front == 0 and not is_worth then return end
  if redis.pcall('LTRIM', call.queue, front, -1).err or not is_worth then return end
  -- Tried with one of them, which is where it was: what is cut off must come back.
  if type(redis.pcall('LPUSH', call.queue, kept[1])) ~= 'number' then return end
  redis.call('LTRIM', call.queue, walked - front + 1, -1)
  local back = {}
  for at = #kept, 1, -1 do back[#back + 1] = kept[at] end
  redis.call('LPUSH', call.queue, unpack(back))
  -- Where nothing else was left of it, the list is a new one.
  redis.pcall('PEXPIRE', call.queue, queue_life(call))
end
