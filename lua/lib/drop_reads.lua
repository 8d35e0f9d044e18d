-- drop_reads(call, tickets): these read holds are no more.
local function drop_reads(call, tickets)
  redis.call('ZREM', call.readers, unpack(tickets))
  forget_holds(call, tickets, redis.call('HMGET', call.lock, unpack(tickets)))
end
