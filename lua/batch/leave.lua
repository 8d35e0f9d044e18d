-- The same of <kind>/leave.
local function run_leave(KEYS, ARGV, time)
