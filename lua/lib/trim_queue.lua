-- trim_queue(call, walked, kept, front): takes the walked part out of the list, save the kept tickets, which stay at
-- its head in their order: no entry is walked over for ever, and none stays that a ticket which missed its claim or
-- its deadline would find again when it joins anew, to be served before those who had come meanwhile. `front` is how
-- many stand before the first kept one. Somebody may have been told of a grant by now, which must be written: a list
-- that may not be trimmed keeps its dead entries.
local function trim_queue(call, walked, kept, front)
  if walked - front == #kept then
    if front > 0 then redis.pcall('LTRIM', call.queue, front, -1) end
    return
  end
  local done = redis.pcall('LTRIM', call.queue, walked, -1)
  if done.err then return end
  local back = {}
  for at = #kept, 1, -1 do back[#back + 1] = kept[at] end
  if #back == 0 then return end
  redis.call('LPUSH', call.queue, unpack(back))
  -- Where nothing else was left of it, the list is a new one.
  redis.pcall('PEXPIRE', call.queue, queue_life(call))
end
