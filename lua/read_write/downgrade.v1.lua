-- read_write/downgrade, version 1
-- EFFECT   Makes a write a read of the same owner, with no moment in between. Where the owner has no other write the
--          lock is held by reads then, and the reads at the head of the queue go in too. Repeating the call is
--          harmless.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- ARGV[1]  terms   of my client (nobody's deadline is set; deaf is not used)
-- ARGV[2]  ticket  the write
-- ARGV[3]  ticket  the read
-- ARGV[4]  request  what it asks for; its owner is that of both
-- RETURNS  granted now:ms token:token left:ms waiting:01
--          (token: the version of the read; waiting: whether a write does)
-- RETURNS  lost now:ms
--          (the write was not held, and the read is not)
-- RETURNS  foreign_key now:ms key:text
-- WAKES    grant   the waiting reads that went in
-- WAKES    lost    the same tickets, where their grant could not be given a lease
-- WAKES    held    the owner's other reads, 256 of them, where a write waits; the next waiting ticket, where this call
--                  got only part of the way
-- COST     12 (the only write, nobody waits)
-- NEEDS    DEL EXISTS GET HDEL HGET HGETALL HMGET HSET LPUSH LRANGE LTRIM PEXPIRE PTTL PUBLISH SET SPUBLISH TIME
--            ZADD ZRANGE ZRANGEBYSCORE ZREM ZSCORE
local call = open_call(KIND)
call.readers = KEYS[5]
local write = ARGV[2]
local me = read_request(ARGV[3], ARGV[4])
local lock, foreign = read_shared(call, write, me.owner)
if not lock then return { 'foreign_key', call.now, foreign } end
if lock.kind and lock.kind ~= KIND then return { 'lost', call.now } end
-- What is held is changed even where the queue is not ours.
local waiting = read_waiting(call, write) or new_waiting()
local failed = settle(call, lock)
if failed then return failed end

local left, untold = 0, 0
if lock.mode == 'write' and lock.mine > call.now then
  call.run = { { ticket = me.ticket, hold = me, is_own = true } }
  local denied = let_in(call, waiting).denied
  if denied then return denied end
  call.run, left = {}, me.lease
  if lock.living == 1 then
    leave_reads(call, lock)
  else
    redis.call('HDEL', call.lock, write)
    settle(call, lock)
    keep_lock(call, lock)
  end
  if lock.was_write and waiting.writers > 0 then untold = tell_reads(call, me.ticket) end
elseif lock.mode then
  left = tonumber(redis.call('ZSCORE', call.readers, me.ticket) or 0) - call.now
end
if lock.mode ~= 'write' then pass_on(call, waiting, math.max(untold, advance_shared(call, waiting).more)) end
save_waiting(call, waiting)
if left <= 0 then return { 'lost', call.now } end
return { 'granted', call.now, lock.token, left, others_wait(waiting, 'read') }
