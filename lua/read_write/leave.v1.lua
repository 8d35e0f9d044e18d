-- read_write/leave, version 1
-- EFFECT   Takes a ticket out, be it a hold or a place in the queue. A lock that is free then, or held by reads only,
--          goes to the first waiting tickets that can be reached: a run of reads, or one write; a new ticket of the
--          same client can join the queue before that. Only the ticket binds, and it is never used twice: repeating the
--          call is harmless. Works when memory is full.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- ARGV[1]  terms   of my client
-- ARGV[2]  ticket  the one that leaves
-- ARGV[3]  ticket  a new one of the same client; it and what follows may be left out
-- ARGV[4]  request  what it asks for; its block is 2 to write, 0 to read
-- ARGV[5]  ms      server time after which it is not queued
-- RETURNS  gone now:ms more:01
--          (it was no hold; more: acquire or leave again, this call got only part of the way)
-- RETURNS  kept now:ms
--          (its owner still writes)
-- RETURNS  freed now:ms more:01 'none'
-- RETURNS  freed now:ms more:01 'queued' place:count left:ms sequence:count
-- RETURNS  freed now:ms more:01 'granted' token:token left:ms waiting:01
--          (the new ticket; others may read beside it, or still)
-- RETURNS  foreign_key now:ms key:text
-- WAKES    grant   the waiting tickets that the lock went to
-- WAKES    lost    the same tickets, where their grant could not be given a lease
-- WAKES    held    the reads that a write leaves behind, where a write waits; all reads, where the new ticket is the
--                  first that is to write (256 in a call); the next waiting ticket, where others of those reads are
--                  left, or where the new one has a grant and the call got only part of the way
-- COST     9 (a read of several, nobody waits)
-- NEEDS    DEL EXISTS GET HDEL HGET HGETALL HMGET HSET LPUSH LRANGE LTRIM PEXPIRE PTTL PUBLISH RPUSH SET SPUBLISH TIME
--            ZADD ZRANGE ZRANGEBYSCORE ZREM ZSCORE
local call = open_call(KIND)
call.readers, call.advance = KEYS[5], advance_shared
local ticket, own = ARGV[2], read_next(call)
-- First of all a write that is allowed when memory is full: then all that follow are too.
local dropped = peek('ZREM', call.readers, ticket)
if not dropped then return { 'foreign_key', call.now, call.readers } end
local lock, foreign = read_shared(call, ticket, '-')
if not lock then return { 'foreign_key', call.now, foreign } end
-- A release does not fail for a queue that is not ours.
local waiting = read_waiting(call, ticket) or new_waiting()
greet_client(call, waiting, ticket)
drop_ticket(waiting, ticket)

local is_ours = (lock.kind or waiting.kind or KIND) == KIND
local is_hold = is_ours and (dropped == 1 or lock.text)
if is_hold then forget_holds(call, { ticket }, { lock.text }) end
-- Where the rest cannot be settled others are inside, and what leaves has left.
if is_ours and settle(call, lock) then return { is_hold and 'kept' or 'gone', call.now, not is_hold and 0 or nil } end
if is_hold then
  keep_lock(call, lock)
  local untold = lock.was_write and waiting.writers > 0 and tell_reads(call) or 0
  if lock.mode == 'write' then
    save_waiting(call, waiting)
    return { 'kept', call.now }
  end
  local reply = hand_over(call, waiting, own)
  pass_on(call, waiting, untold)
  -- The first write tells them as it joins, here as in share_turn.
  if waiting.joined and own.mode == 'write' and lock.mode == 'read' and not call.blocked then
    reply[3] = math.max(reply[3], tell_reads(call))
  end
  return reply
end
local more = is_ours and lock.mode ~= 'write' and advance_shared(call, waiting).more or 0
save_waiting(call, waiting)
return { 'gone', call.now, more }
