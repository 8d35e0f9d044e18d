-- common/inspect, version 1
-- EFFECT   Tells everything about a lock, for people; of many reads, and of many who wait, the first 256. Changes
--          nothing.
-- LAYOUT   1
-- KEYS[1]  hash    K: the holds
-- KEYS[2]  list    K:queue: the waiting tickets
-- KEYS[3]  hash    K:waiting: what is known of them
-- KEYS[4]  string  K:token: the last fencing token
-- KEYS[5]  zset    K:readers: read holds
-- RETURNS  info now:ms kind:kind mode:mode owner:text token:token last:token length:count living:count
--            held:count holds:array waiting:array
--          (kind, mode, owner: empty where there is none; token: 0 where there is none, as the last one minted;
--          length: of the queue, dead entries included; held: how many holds there are; one of holds, of reads the
--          first 256 whose leases end: ticket left:ms owner label; waiting, three texts for each living one among the
--          first 256 entries: the ticket, what K:waiting says of it, and of its client)
-- RETURNS  foreign_key now:ms key:text
-- COST     8 (one hold, nobody waits)
-- NEEDS    GET HGET HGETALL HMGET LLEN LRANGE TIME ZCARD ZRANGE
local call = {
  now = now, lock = KEYS[1], queue = KEYS[2], waiting = KEYS[3], counter = KEYS[4], readers = KEYS[5],
}
local lock = read_holders(call, call.readers)
if not lock then return { 'foreign_key', call.now, call.lock } end
local waiting = read_waiting(call, '')
if not waiting then return { 'foreign_key', call.now, call.waiting } end
local length, last = peek('LLEN', call.queue), read_counter(call)
if not length then return { 'foreign_key', call.now, call.queue } end
if not last then return { 'foreign_key', call.now, call.counter } end
local holds, held = list_holds(call, lock)
if not holds then return { 'foreign_key', call.now, call.readers } end
if not lock.held then lock = {} end
return {
  'info', call.now, lock.kind or waiting.kind or '', lock.mode or '', lock.owner or '', lock.token or 0, last,
  length, waiting.living, held, holds, list_waiting(call),
}
