-- read_counter(call): the last token minted, 0 where none is remembered; nil where K:token is not ours, or has no
-- room for another block below 2^53, from where on Lua's numbers skip some.
local function read_counter(call)
  local text = peek('GET', call.counter)
  if text == false then return 0 end
  local stored = text and text:find('^%d+$') and tonumber(text)
  return stored and stored < 9007199254740992 - 1000 and stored or nil
end
