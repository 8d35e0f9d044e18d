-- common/force_release, version 1
-- EFFECT   Ends the grant that a token belongs to, whoever holds it, and tells the holders. The lock goes to the first
--          waiting ticket that can be reached; of a read/write lock, to a run of reads or one write. Nothing happens
--          where a later grant holds the lock. All reads of one version are one grant; 256 of them are told in a call,
--          and the next call, whosesoever it is, goes on with those that are left.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- KEYS[6]  zset    K:ended: read holds that were ended by force and are still to be told
-- ARGV[1]  terms   of my client (nobody's deadline is set; deaf is not used)
-- ARGV[2]  token   any token of the grant that is to end
-- ARGV[3]  01      whether that has ended, and only its holders are still to be told
-- RETURNS  released now:ms more:01
--          (more: call again, holders are still to be told)
-- RETURNS  told now:ms more:01
--          (holders that an earlier call ended; the lock was not looked at)
-- RETURNS  not_held now:ms
-- RETURNS  foreign_key now:ms key:text
-- WAKES    lost    every holder; the waiting ticket, where its grant could not be given a lease
-- WAKES    grant   the waiting ticket that the lock went to
-- WAKES    held    the next waiting ticket, where this call got only part of the way
-- COST     7 (one hold, nobody waits)
-- NEEDS    DEL EXISTS GET HDEL HGET HGETALL HMGET HSET LPUSH LRANGE LTRIM PEXPIRE PTTL PUBLISH RENAME SET SPUBLISH
--            TIME ZADD ZRANGE ZREM ZSCORE
local call = open_call('read_write') -- the kind of those in K:ended; that of K is set where K is known
local ended = peek('ZRANGE', KEYS[6], 0, 255)
if not ended then return { 'foreign_key', call.now, KEYS[6] } end
if #ended > 0 then return { 'told', call.now, tell_ended(call, KEYS[6], ended) } end
-- Another caller has told them: those who read by now, perhaps under the same version, are others.
if ARGV[3] == '1' then return { 'told', call.now, 0 } end
local lock = read_holders(call, KEYS[5])
if not lock then return { 'foreign_key', call.now, call.lock } end
local token, more = tonumber(ARGV[2]), 0
if not lock.held or token < lock.token or token >= lock.token + lock.block then return { 'not_held', call.now } end

call.kind = lock.kind
local waiting = read_waiting(call, '') or new_waiting()
if lock.mode == 'read' then
  redis.call('RENAME', KEYS[5], KEYS[6])
  redis.call('DEL', call.lock)
  -- Behind all of them: a token is larger than any time.
  redis.call('ZADD', KEYS[6], int(lock.token), 'version')
  more = tell_ended(call, KEYS[6], redis.call('ZRANGE', KEYS[6], 0, 255))
else
  redis.call('DEL', call.lock, KEYS[5])
  for _, ticket in ipairs(lock.tickets) do tell(call, ticket, 'lost ' .. ticket .. ' ' .. int(lock.token)) end
end
if waiting.kind == lock.kind and lock.kind == 'read_write' then
  call.readers, call.shared = KEYS[5], { read_ends = 0, ends = 0 }
  pass_on(call, waiting, advance_shared(call, waiting).more)
elseif waiting.kind == lock.kind then
  pass_on(call, waiting, advance(call, waiting).more)
end
save_waiting(call, waiting)
return { 'released', call.now, more }
