-- The same in microseconds and in milliseconds.
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
