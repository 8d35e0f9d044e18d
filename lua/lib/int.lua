-- int(n): a whole number as text, all of its digits. Lua's own conversion keeps 14 of them, '%.0f' takes three times as
-- long, and '%d' alone knows no more than the C library's `long`: 32 bits on some machines.
local function int(n)
  if n + 0 < 1e9 then return string.format('%d', n) end
  return string.format('%d%09d', math.floor(n / 1e9), n % 1e9)
end
