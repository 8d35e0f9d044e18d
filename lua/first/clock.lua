-- The server's clock in microseconds and milliseconds, read once in a call: it may move within a script.
local micros = redis.call('TIME')
micros = micros[1] * 1000000 + micros[2]
local now = math.floor(micros / 1000)
