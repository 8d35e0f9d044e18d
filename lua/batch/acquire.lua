-- What stands from here to the end of the function is <kind>/acquire, as it is when it is called alone.
local function run_acquire(KEYS, ARGV, time)
