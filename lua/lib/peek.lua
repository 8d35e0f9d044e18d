-- peek(command, key, ...): what redis.call returns; nil where the key is of another type than ours.
local function peek(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  elseif reply.err:find('WRONGTYPE', 1, true) then
    return nil
  end
  return redis.call(...) -- any other error ends the script, in the server's own words
end
