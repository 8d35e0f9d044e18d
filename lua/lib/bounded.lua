-- bounded(text, least, most): an argument in milliseconds, moved into its bounds.
local function bounded(text, least, most)
  return math.max(least, math.min(most, tonumber(text)))
end
