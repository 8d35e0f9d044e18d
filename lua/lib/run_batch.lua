-- run_batch(scripts, width): the body of <kind>/batch. `scripts` is operation -> function of KEYS, ARGV and the clock;
-- each of its calls has `width` keys. A call that ends by an error ends none of the others: each of them stands in the
-- reply, or nobody would hear of what it did.
local function run_batch(scripts, width)
  local replies, key, arg = {}, 1, 3
  local time = redis.call('TIME')
  local began = time[1] * 1000000 + time[2]
  while ARGV[arg] do
    local keys = { unpack(KEYS, key, key + width - 1) }
    local last = arg + 1 + ARGV[arg + 1]
    local args = { ARGV[1], unpack(ARGV, arg + 2, last) }
    local is_done, reply = pcall(scripts[ARGV[arg]], keys, args, time)
    local has_failed = not is_done or type(reply) == 'table' and reply.err
    replies[#replies + 1] = not has_failed and reply
    key, arg = key + width, last + 1
    time = redis.call('TIME')
    if time[1] * 1000000 + time[2] - began > tonumber(ARGV[2]) then break end
  end
  return replies
end
