-- fenced/get, version 1
-- EFFECT   Reads a value and the token that wrote it. Changes nothing.
-- LAYOUT   1
-- KEYS[1]  hash    K:fenced: the value, and the token that wrote it
-- RETURNS  value now:ms token:token value:text
-- RETURNS  none now:ms
-- RETURNS  foreign_key now:ms key:text
-- COST     3 (nothing was written)
-- NEEDS    EXISTS HMGET TIME
local old = peek('HMGET', KEYS[1], 'token', 'value')
if not old then return { 'foreign_key', now, KEYS[1] } end
if not old[1] and not old[2] and redis.call('EXISTS', KEYS[1]) == 0 then return { 'none', now } end
local token = tonumber(old[1] or nil)
if not (token and old[2]) then return { 'foreign_key', now, KEYS[1] } end
return { 'value', now, token, old[2] }
