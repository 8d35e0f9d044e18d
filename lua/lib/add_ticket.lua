-- add_ticket(call, waiting, me): my ticket waits, as save_waiting will write it.
local function add_ticket(call, waiting, me)
  local id = client_of(me.ticket)
  waiting.kind, waiting.last, waiting.living = call.kind, (waiting.last or 0) + 1, waiting.living + 1
  if me.mode == 'write' then waiting.writers = waiting.writers + 1 end
  -- A deadline that this call has cut stays cut: only the client's next call lengthens it.
  waiting.clients[id] = waiting.clients[id] or { deadline = call.now + call.deadline, living = 0, deaf = call.deaf }
  local client = touch_client(waiting, me.ticket)
  client.living = client.living + 1
  waiting.joined = me.ticket
  waiting.joined_text = int(waiting.last) .. ' ' .. int(call.now) .. ' ' .. me.text
end
