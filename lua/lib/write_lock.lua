-- write_lock(call, ticket, hold, token, lease): K, which is absent, becomes the hold of this ticket. Returns the error
-- where K cannot be given a TTL: K is deleted then, for a lock without a lease is held for ever.
local function write_lock(call, ticket, hold, token, lease)
  redis.call('HSET', call.lock, 'kind', call.kind, 'mode', hold.mode, 'owner', hold.owner,
    'token', int(token), 'block', int(hold.block), ticket, int(call.now + lease) .. ' ' .. hold.tail)
  local done = redis.pcall('PEXPIRE', call.lock, int(lease))
  if type(done) == 'table' then
    redis.call('DEL', call.lock)
    return done
  end
end
