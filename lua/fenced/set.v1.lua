-- fenced/set, version 1
-- EFFECT   Writes a value, unless a larger token has written before. Writes of one client with one token take effect in
--          the order of their tickets: a call that is repeated, or that comes late, changes nothing.
-- LAYOUT   1
-- KEYS[1]  hash    K:fenced: the value, the token that wrote it, and each client's last ticket with that token
-- ARGV[1]  token   of the grant under which is written
-- ARGV[2]  ticket  of this write
-- ARGV[3]  text    the value
-- RETURNS  written now:ms
-- RETURNS  stale now:ms largest:token
-- RETURNS  foreign_key now:ms key:text
-- COST     4 (the first write)
-- NEEDS    EXISTS HMGET HSET TIME
local old = peek('HMGET', KEYS[1], 'token', 'value', 'writers')
if not old then return { 'foreign_key', now, KEYS[1] } end
local is_new = not old[1] and not old[2] and redis.call('EXISTS', KEYS[1]) == 0
local largest = is_new and 0 or tonumber(old[1] or nil)
if not largest or not is_new and not (old[2] and old[3]) then return { 'foreign_key', now, KEYS[1] } end
local token = tonumber(ARGV[1])
if token < largest then return { 'stale', now, largest } end

-- Those who wrote with this token, each by its last ticket. A smaller token's are of no more use: it is refused.
local writers = {}
local client, number = client_of(ARGV[2]), tonumber(ARGV[2]:match('%d+$'))
if token == largest and not is_new then
  for ticket in old[3]:gmatch('%S+') do
    if client_of(ticket) ~= client then
      writers[#writers + 1] = ticket
    elseif tonumber(ticket:match('%d+$')) >= number then
      return { 'written', now }
    end
  end
end
writers[#writers + 1] = ARGV[2]
redis.call('HSET', KEYS[1], 'token', int(token), 'value', ARGV[3], 'writers', table.concat(writers, ' '))
return { 'written', now }
