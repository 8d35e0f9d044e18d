-- queue_life(call): the TTL of K:queue and K:waiting: this client's deadline + 10 s, never shorter than it was.
local function queue_life(call)
  return int(math.max(redis.call('PTTL', call.waiting), call.deadline + 10000))
end
