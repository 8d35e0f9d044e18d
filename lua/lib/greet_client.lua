-- greet_client(call, waiting, ticket): the client has called: its places live on for a whole deadline.
local function greet_client(call, waiting, ticket)
  local client = touch_client(waiting, ticket)
  if client then
    client.deadline, client.deaf = call.now + call.deadline, call.deaf
    waiting.greeted = true
  end
end
