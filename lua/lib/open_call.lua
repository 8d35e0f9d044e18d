-- open_call(kind): what all helpers want to know of this call. Times are in milliseconds.
local function open_call(kind)
  return {
    kind = kind, lock = KEYS[1], queue = KEYS[2], waiting = KEYS[3], counter = KEYS[4], micros = micros, now = now,
    claim = bounded(ARGV[1], 50, 60000), deadline = bounded(ARGV[2], 200, 600000),
    sharded = ARGV[3] == '1', counted = ARGV[4] == '1', run = {}, offers = 0,
  }
end
