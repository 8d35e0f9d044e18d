-- read_shared(call, ticket, owner): K and K:readers as a table, as far as a call for this ticket and owner needs them,
-- however many reads are inside; nil and the key where one is not ours. `mode` is nil where K is absent; `text` is
-- what K says of the ticket's hold, and `mine` its lease end, 0 where there is none; `reads` the owner's read tickets,
-- as text; `read_ends` the longest lease end of all reads, `ends` the same until settle knows of the writes.
local function read_shared(call, ticket, owner)
  local found =
    peek('HMGET', call.lock, 'kind', 'mode', 'owner', 'token', 'block', ticket, 'reader:' .. owner, 'restored')
  if not found or not found[1] and redis.call('EXISTS', call.lock) == 1 then return nil, call.lock end
  local kind, mode, token, block = found[1], found[2], tonumber(found[4]), tonumber(found[5])
  local mine = tonumber((found[6] or '0'):match('^%d+'))
  local is_whole = found[3] and token and block and mine
  if kind and not (is_whole and (kind ~= call.kind or mode == 'read' or mode == 'write')) then
    return nil, call.lock
  end
  local last = peek('ZRANGE', call.readers, -1, -1, 'WITHSCORES')
  if not last then return nil, call.readers end
  local read_ends = tonumber(last[2] or 0)
  -- Of reads from before K was lost only K:readers knows.
  if (found[8] or not kind) and read_ends > 0 and not found[6] then
    mine = tonumber(redis.call('ZSCORE', call.readers, ticket) or 0)
  end
  return {
    kind = kind, mode = mode, owner = found[3], token = token, block = block, text = found[6], mine = mine,
    reads = found[7], read_ends = read_ends, ends = read_ends,
  }
end
