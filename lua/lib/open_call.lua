-- open_call(kind): what all helpers want to know of this call. Times are in milliseconds, `micros` is the server's
-- clock in microseconds. The clock is read once: it may move within a script.
local function open_call(kind)
  local time = redis.call('TIME')
  local micros = time[1] * 1000000 + time[2]
  return {
    kind = kind, lock = KEYS[1], queue = KEYS[2], waiting = KEYS[3], counter = KEYS[4],
    micros = micros, now = math.floor(micros / 1000),
    claim = bounded(ARGV[1], 50, 60000), deadline = bounded(ARGV[2], 200, 600000),
    sharded = ARGV[3] == '1', counted = ARGV[4] == '1',
  }
end
