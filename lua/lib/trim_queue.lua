-- trim_queue(call, walked, kept, front): takes dead entries of the walked part out of the list: those in front of the
-- first kept one, and where there are many behind it, all. No entry is walked over for ever. Somebody may have been
-- told of a grant by now, which must be written: a list that may not be trimmed keeps its dead entries.
local function trim_queue(call, walked, kept, front)
  if walked - front - #kept < 64 then
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
