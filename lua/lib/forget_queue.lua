-- forget_queue(call, waiting): one of K:queue and K:waiting was lost alone: both go, and everybody registers again
-- at the next poll.
local function forget_queue(call, waiting)
  redis.call('DEL', call.queue, call.waiting)
  waiting.last, waiting.greeted = nil, nil
  for field, value in pairs(new_waiting()) do waiting[field] = value end
end
