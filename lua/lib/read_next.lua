-- read_next(call): the new ticket that came with a leaving, as it stands in the queue; nil where there is none,
-- or it came too late.
local function read_next(call)
  if not ARGV[7] or call.now > tonumber(ARGV[12]) then return nil end
  return {
    mode = 'exclusive', ticket = ARGV[7], owner = ARGV[8], lease = tonumber(ARGV[9]), block = tonumber(ARGV[10]),
    label = ARGV[11], deaf = ARGV[6] == '1', queued = true,
  }
end
