-- read_lock(call): K as a table; nil where K is not ours. Without `kind` where K is absent. `holds` is ticket ->
-- lease end, `tails` ticket -> owner and label, `tickets` their list in order, `ends` the longest lease end; `fields`
-- is all that is no hold.
-- `held` is false where all leases have ended: somebody took away the TTL of K, or it is gone within a millisecond.
local function read_lock(call)
  local flat = peek('HGETALL', call.lock)
  if not flat then return nil end
  local fields, holds, tails, tickets, ends = {}, {}, {}, {}, 0
  for at = 1, #flat, 2 do
    local field, value = flat[at], flat[at + 1]
    if field:find('^%x[%x-]+:%d+$') then
      local lease_end, tail = value:match('^(%d+) (.+)$')
      if not lease_end then return nil end
      holds[field], tails[field] = tonumber(lease_end), tail
      tickets[#tickets + 1] = field
      ends = math.max(ends, holds[field])
    else
      fields[field] = value
    end
  end
  local token, block = tonumber(fields.token), tonumber(fields.block)
  if #flat > 0 and not (fields.kind and fields.mode and fields.owner and token and block) then return nil end
  table.sort(tickets)
  return {
    fields = fields, kind = fields.kind, mode = fields.mode, owner = fields.owner, token = token, block = block,
    holds = holds, tails = tails, tickets = tickets, ends = ends, held = ends > call.now,
  }
end
