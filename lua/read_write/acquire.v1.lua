-- read_write/acquire, version 1
-- EFFECT   Gives the lock to a ticket, to read or to write, adds the ticket's hold where its owner holds the lock, or
--          queues it. A read goes in beside others, unless a write waits before it. A lock that is found free goes to
--          the first waiting tickets that can be reached: a run of reads, or one write. Repeating the call is harmless.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- ARGV[1]  terms   of my client
-- ARGV[2]  ticket  mine
-- ARGV[3]  request  what I ask for with it; its block is 2 to write, 0 to read
-- ARGV[4]  ms      server time after which this call changes nothing
-- ARGV[5]  012     0: do not wait; 1: join the queue; 2: the same, and tell the holders
-- RETURNS  granted now:ms token:token left:ms waiting:01
--          (token: of a read, its version; waiting: of a read, whether a write does)
-- RETURNS  queued now:ms place:count left:ms new:01 more:01 sequence:count living:count
--            hold:ticket...
--          (more: call again, this call got only part of the way; sequence: how many had joined this queue, mine the
--          last; living: how many wait; holds: all of my client, of reads those that this call tells; for a read that
--          waits behind reads none, unless my client is deaf)
-- RETURNS  busy now:ms left:ms
-- RETURNS  would_deadlock now:ms
--          (my owner reads, and I am to write; I do not wait any more)
-- RETURNS  stale now:ms
-- RETURNS  kind_mismatch now:ms kind:text
-- RETURNS  foreign_key now:ms key:text
-- WAKES    grant   the waiting tickets that the lock went to
-- WAKES    lost    the same tickets, where their grant could not be given a lease
-- WAKES    held    the holders: all reads, 256 in a call, where the ticket is the first that is to write, or polls to
--                  write and they were not told for a claim; the write, where the ticket heads the queue or polls; the
--                  next waiting ticket, where the call got only part of the way and the reply does not say so
-- COST     10 (a read beside others, nobody waits)
-- NEEDS    DEL EXISTS GET HDEL HGET HGETALL HMGET HSET INCRBY LPUSH LRANGE LREM LTRIM PEXPIRE PTTL PUBLISH RPUSH SET
--            SPUBLISH TIME ZADD ZRANGE ZRANGEBYSCORE ZREM ZSCORE
local call = open_call(KIND)
call.readers = KEYS[5]
local me = read_request(ARGV[2], ARGV[3])
me.wait = ARGV[5]
-- A request that was stuck in a socket must not become a hold that nobody knows of.
if call.now > tonumber(ARGV[4]) then return { 'stale', call.now } end
local lock, foreign = read_shared(call, me.ticket, me.owner)
if not lock then return { 'foreign_key', call.now, foreign } end
local waiting = read_waiting(call, me.ticket)
if not waiting then return { 'foreign_key', call.now, call.waiting } end
local found = lock.kind or waiting.kind or KIND
if found ~= KIND then return { 'kind_mismatch', call.now, found } end

local denied = settle(call, lock)
if denied then return denied end
greet_client(call, waiting, me.ticket)
if lock.mode then
  local is_owner = me.owner ~= '-' and (lock.owner == me.owner or lock.mode == 'read' and is_reading(call, lock))
  if is_owner and lock.mode == 'read' and me.mode == 'write' then return refuse_write(call, waiting, me) end
  if is_owner or lock.mine > call.now then
    if me.mode == 'write' then return enter_again(call, waiting, lock, me) end
    return read_again(call, waiting, lock, me)
  end
end
if lock.mode == 'write' then return wait_behind(call, waiting, lock, me, 0) end
return share_turn(call, waiting, lock, me)
