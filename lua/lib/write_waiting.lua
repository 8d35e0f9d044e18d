-- write_waiting(call, waiting): the changed fields of K:waiting. A client's field goes with its last ticket.
local function write_waiting(call, waiting)
  local gone = waiting.gone
  local writers = waiting.writers > 0 and ' ' .. int(waiting.writers) or ''
  local set = { 'queue', waiting.kind .. ' ' .. int(waiting.last) .. ' ' .. int(waiting.living) .. writers }
  local function write(field, text)
    set[#set + 1] = field
    set[#set + 1] = text
  end
  for _, id in ipairs(waiting.touched) do
    local client = waiting.clients[id]
    if client.living > 0 then
      write(id, int(client.deadline) .. ' ' .. int(client.living) .. (client.deaf and ' deaf' or ''))
    else
      gone[#gone + 1] = id
    end
  end
  if waiting.joined then write(waiting.joined, waiting.joined_text) end
  if #gone > 0 then redis.call('HDEL', call.waiting, unpack(gone)) end
  redis.call('HSET', call.waiting, unpack(set))
end
