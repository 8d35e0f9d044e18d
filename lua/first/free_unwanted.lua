-- The usual case of leave, before anything else is defined: the ticket is the only hold of a lock that nobody waits
-- for, and no new ticket comes with it. Everything else goes on below, with nothing changed.
if not ARGV[7] and redis.call('EXISTS', KEYS[3]) == 0 then
  local flat, fields = redis.pcall('HGETALL', KEYS[1]), {}
  for at = 1, #flat, 2 do fields[flat[at]] = flat[at + 1] end
  if #flat == 12 and fields.kind == KIND and fields.token and fields[ARGV[5]] then
    redis.call('DEL', KEYS[1])
    return { 'freed', now, 0, 'none' }
  end
end
