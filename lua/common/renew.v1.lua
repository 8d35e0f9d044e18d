-- common/renew, version 1
-- EFFECT   Lengthens the leases of holds, up to 100 in a call. A lease is never shortened, and a hold whose lease has
--          ended is lost. The places of the clients that ask live on. Works when memory is full. K:queue is not
--          named: its TTL grows by its tickets' polls.
-- LAYOUT   1
-- KEYS[3n-2]  hash    K: the holds; n = 1, 2, ...
-- KEYS[3n-1]  hash    K:waiting: who waits
-- KEYS[3n]    zset    K:readers: read holds
-- ARGV[1]     ms      client deadline, 200 to 600000
-- ARGV[2n]    ticket  the hold
-- ARGV[2n+1]  ms      its lease
-- RETURNS  renewed now:ms {left:left waiting:01}...
--          (left: ms, or -1 where the hold is lost)
-- COST     6 (one exclusive hold, its client does not wait)
-- NEEDS    HGET HMGET HSET PEXPIRE PTTL TIME ZADD ZSCORE
local deadline = bounded(ARGV[1], 200, 600000)
local reply = { 'renewed', now }
for n = 1, #KEYS / 3 do
  local keys = { lock = KEYS[3 * n - 2], waiting = KEYS[3 * n - 1], readers = KEYS[3 * n] }
  local left, waiting = renew_hold(deadline, keys, ARGV[2 * n], tonumber(ARGV[2 * n + 1]))
  reply[#reply + 1] = left
  reply[#reply + 1] = waiting
end
return reply
