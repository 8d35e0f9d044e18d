-- The usual case of leave, before anything else is read or defined, for the definitions alone would cost as much: the
-- ticket is the only hold, and no new ticket comes with it (`is_plain`); and nobody waits. Counting the fields (five
-- beside the holds) costs a fifth of reading them.
local is_plain = not ARGV[3] and redis.pcall('HLEN', KEYS[1]) == 6 and redis.pcall('HEXISTS', KEYS[1], ARGV[2]) == 1
if is_plain and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  return 'freed'
end
