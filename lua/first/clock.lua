-- The server's clock in microseconds and milliseconds, read once in a call: it may move within a script.
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
