-- The usual case of leave, before anything else is defined: the ticket is the only hold of a lock that nobody waits
-- for, and no new ticket comes with it. Everything else goes on below, with nothing changed. Counting the fields (five
-- beside the holds) costs a fifth of reading them.
if not ARGV[3] and redis.call('EXISTS', KEYS[3]) == 0 and redis.pcall('HLEN', KEYS[1]) == 6
  and redis.pcall('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('DEL', KEYS[1])
  return { 'freed', now, 0, 'none' }
end
