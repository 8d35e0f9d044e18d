-- open_call(kind): what all helpers want to know of this call. Times are in milliseconds.
local function open_call(kind)
  local claim, deadline, sharded, counted, deaf = ARGV[1]:match('^(%d+) (%d+) ([01]) ([01]) ([01])$')
  return {
    kind = kind, lock = KEYS[1], queue = KEYS[2], waiting = KEYS[3], counter = KEYS[4], micros = micros, now = now,
    claim = bounded(claim, 50, 60000), deadline = bounded(deadline, 200, 600000),
    sharded = sharded == '1', counted = counted == '1', deaf = deaf == '1', run = {}, offers = 0,
  }
end
