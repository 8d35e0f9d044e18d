-- read_client(text): a client's field of K:waiting as a table; false where there is none.
local function read_client(text)
  local deadline, living, deaf = (text or ''):match('^(%d+) (%d+)( ?%a*)$')
  return deadline and { deadline = tonumber(deadline), living = tonumber(living), deaf = deaf == ' deaf' }
end
