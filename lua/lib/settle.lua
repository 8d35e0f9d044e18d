-- settle(call, lock): what has ended goes, and what was lost alone is made up for; lock.mode is nil then where the lock
-- is free, and a write-held lock has `holds`, `tickets` and `ends` as in read_lock, its `writes` (their tickets), and
-- how many of them are `living`.
--   K gone, reads inside        K anew, read-held
--   read-held, no read inside   K goes
--   write-held, writes ended    read-held where the owner still reads, else K goes
-- Up to 256 reads whose leases have ended are forgotten in a call; nothing depends on the rest. Returns the error where
-- K could not be given a lease: it is as it was then.
local function settle(call, lock)
  call.shared = lock
  if lock.mode == 'write' then
    local all = read_lock(call)
    local reads, writes, living = {}, {}, 0
    for ticket in (all.fields['reader:' .. lock.owner] or ''):gmatch('%S+') do reads[ticket] = true end
    for _, ticket in ipairs(all.tickets) do
      if not reads[ticket] then
        writes[#writes + 1] = ticket
        if all.holds[ticket] > call.now then living = living + 1 end
      end
    end
    lock.holds, lock.tickets, lock.ends, lock.writes, lock.living = all.holds, all.tickets, all.ends, writes, living
    if living > 0 then return end
    leave_reads(call, lock)
  end
  if lock.read_ends > call.now then
    local denied = not lock.mode and restore_reads(call, lock)
    if denied then return denied end
    local ended = redis.call('ZRANGEBYSCORE', call.readers, '-inf', int(call.now), 'LIMIT', 0, 256)
    if #ended > 0 then drop_reads(call, ended) end
  elseif lock.mode or lock.read_ends > 0 then
    redis.call('DEL', call.lock, call.readers)
    lock.mode, lock.read_ends = nil, 0
  end
end
