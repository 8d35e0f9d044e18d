-- read_next(call): the new ticket that came with a leaving, as it stands in the queue; nil where there is none,
-- or it came too late.
local function read_next(call)
  if not ARGV[3] or call.now > tonumber(ARGV[5]) then return nil end
  local own = read_request(ARGV[3], ARGV[4])
  own.queued = true
  return own
end
