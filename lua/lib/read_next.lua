-- read_next(call): the new ticket that came with a leaving, as it stands in the queue; nil where there is none,
-- or it came too late.
local function read_next(call)
  if not ARGV[3] or call.now > tonumber(ARGV[8]) then return nil end
  return {
    mode = 'exclusive', ticket = ARGV[3], owner = ARGV[4], lease = tonumber(ARGV[5]), block = tonumber(ARGV[6]),
    label = ARGV[7], queued = true,
  }
end
