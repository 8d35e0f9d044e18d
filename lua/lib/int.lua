-- int(n): a whole number as text, all of its digits. Lua's own conversion keeps 14 of them.
local function int(n)
  return string.format('%.0f', n)
end
