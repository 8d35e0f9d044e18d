-- common/force_release, version 1
-- EFFECT   Ends the grant that a token belongs to, whoever holds it, and tells the holders. The lock goes to the first
--          waiting ticket that can be reached; of a read/write lock, to a run of reads or one write. Nothing happens
--          where a later grant holds the lock. All reads of one version are one grant.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- ARGV[1]  ms      claim: the first, short lease of a hold that is handed over, 50 to 60000
-- ARGV[2]  ms      client deadline, 200 to 600000 (not used: nobody's deadline is set)
-- ARGV[3]  01      whether channels are sharded
-- ARGV[4]  01      whether the counts of PUBLISH can be trusted
-- ARGV[5]  token   any token of the grant that is to end
-- RETURNS  released now:ms
-- RETURNS  not_held now:ms
-- RETURNS  foreign_key now:ms key:text
-- WAKES    lost    every holder; the waiting ticket, where its grant could not be given a lease
-- WAKES    grant   the waiting ticket that the lock went to
-- WAKES    held    the next waiting ticket, where this call got only part of the way
-- COST     6 (one hold, nobody waits)
-- NEEDS    DEL GET HDEL HGET HGETALL HMGET HSET LPUSH LRANGE LTRIM PEXPIRE PTTL PUBLISH SET SPUBLISH TIME ZADD
--            ZRANGE ZREM ZSCORE
local call = open_call()
local lock = read_holders(call, KEYS[5])
if not lock then return { 'foreign_key', call.now, call.lock } end
local token = tonumber(ARGV[5])
if not lock.held or token < lock.token or token >= lock.token + lock.block then return { 'not_held', call.now } end

call.kind = lock.kind
local waiting = read_waiting(call, lock.tickets[1]) or new_waiting()
redis.call('DEL', call.lock, KEYS[5])
for _, ticket in ipairs(lock.tickets) do
  tell(call, ticket, 'lost ' .. ticket .. ' ' .. int(lock.token))
end
if waiting.kind == lock.kind and lock.kind == 'read_write' then
  call.readers, call.shared = KEYS[5], { read_ends = 0, ends = 0 }
  pass_on(call, waiting, advance_shared(call, waiting).more)
elseif waiting.kind == lock.kind then
  pass_on(call, waiting, advance(call, waiting).more)
end
save_waiting(call, waiting)
return { 'released', call.now }
