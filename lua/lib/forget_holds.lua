-- forget_holds(call, tickets, texts): takes these holds, of which K says so, out of K, and out of the read tickets of
-- their owners.
local function forget_holds(call, tickets, texts)
  redis.call('HDEL', call.lock, unpack(tickets))
  local gone, names = {}, {}
  for at, ticket in ipairs(tickets) do
    local owner = (texts[at] or ''):match('^%d+ (%S+)')
    if owner and owner ~= '-' then
      if not gone[owner] then names[#names + 1] = owner end
      gone[owner] = gone[owner] or {}
      gone[owner][ticket] = true
    end
  end
  for _, owner in ipairs(names) do
    local field, left = 'reader:' .. owner, {}
    for ticket in (redis.call('HGET', call.lock, field) or ''):gmatch('%S+') do
      if not gone[owner][ticket] then left[#left + 1] = ticket end
    end
    if #left > 0 then
      redis.call('HSET', call.lock, field, table.concat(left, ' '))
    else
      redis.call('HDEL', call.lock, field)
    end
  end
end
