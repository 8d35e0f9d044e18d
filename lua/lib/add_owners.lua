-- add_owners(call, run): what K is to say of the explicit owners of these reads, as a list of fields and values:
-- `reader:<owner>` -> its read tickets.
local function add_owners(call, run)
  local names, lists, values = {}, {}, {}
  for _, read in ipairs(run) do
    local name = 'reader:' .. read.hold.owner
    if read.hold.owner ~= '-' and not lists[name] then
      lists[name] = {}
      names[#names + 1] = name
    end
    if lists[name] then table.insert(lists[name], read.ticket) end
  end
  if #names == 0 then return values end
  local found = redis.call('HMGET', call.lock, unpack(names))
  for at, name in ipairs(names) do
    local text = found[at] or ''
    for _, ticket in ipairs(lists[name]) do
      if not (' ' .. text .. ' '):find(' ' .. ticket .. ' ', 1, true) then text = text .. ' ' .. ticket end
    end
    values[#values + 1] = name
    values[#values + 1] = text:match('^ ?(.*)$')
  end
  return values
end
