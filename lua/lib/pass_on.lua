-- pass_on(call, waiting, more): where this call got only part of the way, and its reply does not say so, the first
-- waiting ticket that can be reached is told, as a holder is: its client polls at once, and that call goes on from
-- here. (Else all behind the limit would wait for somebody's poll.) Looks over 512 entries at most, and tells 32.
local function pass_on(call, waiting, more)
  if more == 0 then return end
  local last = call.offers + 32
  for first = 0, 511, 64 do
    local chunk = redis.call('LRANGE', call.queue, first, first + 63)
    if #chunk == 0 then return end
    look_up(call, waiting, chunk)
    for _, ticket in ipairs(chunk) do
      local entry, client = waiting.entries[ticket], waiting.clients[client_of(ticket)]
      if entry and not entry.met and client and client.deadline > call.now and not client.unreachable then
        local heard = tell(call, ticket, 'held ' .. ticket)
        call.offers = call.offers + 1
        if heard and (heard > 0 or not call.counted) or call.offers == last then return end
        client.unreachable = true
      end
    end
  end
end
