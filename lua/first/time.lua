-- The server's clock, read once in a call: it may move within a script.
local time = redis.call('TIME')
