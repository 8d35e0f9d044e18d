-- next_reads(call, goes_on): the reads inside that this call is to tell that somebody is to write, in the order of
-- their lease ends: 256, and those that end with the last of them; and 1 where the next call is to go on, else 0. How
-- far they were told stands in K as `told`, and when as `told_at`: from there it `goes_on`, or it begins anew. Who
-- comes in or renews meanwhile, and so may stand elsewhere in that order, hears it in the reply.
local function next_reads(call, goes_on)
  local told = goes_on and tonumber(redis.call('HGET', call.lock, 'told') or nil)
  local from = '(' .. int(told or call.now)
  local last = redis.call('ZRANGEBYSCORE', call.readers, from, '+inf', 'WITHSCORES', 'LIMIT', 255, 1)[2]
  -- First a write that is allowed when memory is full.
  redis.call('HDEL', call.lock, 'told')
  redis.call('HSET', call.lock, 'told_at', int(call.now))
  if last then redis.call('HSET', call.lock, 'told', last) end
  return redis.call('ZRANGEBYSCORE', call.readers, from, last or '+inf'), last and 1 or 0
end
