-- The world that a script sees. Runs once per engine, with the functions of the host as arguments, and returns how
-- to run a script, the globals of all scripts, and the table behind them.
--
-- A real server marks tables as read-only, which plain Lua cannot. So a script never gets a library or the globals
-- themselves but a facade: an empty table that shows them and refuses every assignment. Each function that writes
-- to a table without asking its metatable has to know the facades.
local call, protected_call, caught, sha1hex, log, fault_handler = ...

local error, getmetatable, setmetatable, next, pairs, pcall, rawget, rawset, select, setfenv, tostring, type =
  error, getmetatable, setmetatable, next, pairs, pcall, rawget, rawset, select, setfenv, tostring, type
local loadstring, xpcall, collectgarbage, sub, byte, insert =
  loadstring, xpcall, collectgarbage, string.sub, string.byte, table.insert

local READONLY = 'Attempt to modify a readonly table'

-- facade -> the table behind it
local behind = {}

local function refuse()
  error(READONLY, 2)
end

local function facade(hidden)
  local shown = setmetatable({}, { __index = hidden, __newindex = refuse, __metatable = false })
  behind[shown] = hidden
  return shown
end

-- As a C function of the server raises: without a place in front of the text.
local function check(table)
  if behind[table] then
    error(READONLY, 0)
  end
end

local function failure(text)
  return { err = 'ERR ' .. text }
end

----------------------------------------------------------------------------------------------------------------
-- redis

local redis = {
  call = call, pcall = protected_call, sha1hex = sha1hex, log = log,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
}

function redis.error_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return failure('wrong number or type of arguments')
  end
  text = text:gsub('[\r\n]+$', '')
  local code, rest = text:match('^%-?([^ ]*) (.*)$')
  return code and { err = code .. ' ' .. rest } or failure((text:gsub('^%-', '')))
end

function redis.status_reply(...)
  local text = ...
  if select('#', ...) ~= 1 or type(text) ~= 'string' then
    return failure('wrong number or type of arguments')
  end
  return { ok = text }
end

----------------------------------------------------------------------------------------------------------------
-- globals

local globals = {
  _VERSION = _VERSION, assert = assert, error = error, ipairs = ipairs, rawequal = rawequal, select = select,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
}
setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = facade(globals)

local function results(ok, ...)
  if ok then
    return true, ...
  end
  local problem = caught((...))
  -- The server's own pcall hands on the text alone.
  local text = type(problem) == 'table' and problem.err
  if type(text) == 'string' or type(text) == 'number' then
    return false, text
  end
  return false, problem
end

function globals.pcall(...)
  if select('#', ...) == 0 then
    return false, 'attempt to call a boolean value'
  end
  return results(pcall(...))
end

function globals.xpcall(...)
  if select('#', ...) < 2 then
    error("bad argument #2 to 'xpcall' (value expected)", 2)
  end
  local body, handler = ...
  return xpcall(body, function(problem)
    return handler(caught(problem))
  end)
end

function globals.getmetatable(...)
  local value = ...
  if behind[value] then
    -- The globals have one that nobody may change; the libraries have none.
    return value == environment and environment or nil
  end
  return getmetatable(...)
end

function globals.setmetatable(...)
  check((...))
  return setmetatable(...)
end

function globals.rawset(...)
  check((...))
  return rawset(...)
end

function globals.rawget(...)
  local table, name = ...
  if behind[table] then
    return rawget(behind[table], name)
  end
  return rawget(...)
end

function globals.next(...)
  local table, name = ...
  if behind[table] then
    return next(behind[table], name)
  end
  return next(...)
end

function globals.pairs(...)
  local shown = ...
  if behind[shown] then
    local copy = {}
    for name, value in pairs(behind[shown]) do
      copy[name] = value
    end
    return next, copy, nil
  end
  return pairs(...)
end

-- Stopping the collector, or tuning it, would outlive the script.
function globals.collectgarbage(option)
  return option == 'count' and collectgarbage('count') or 0
end

function globals.gcinfo()
  return collectgarbage('count')
end

-- Compiled text sees what its script sees; compiled bytes could break the interpreter.
function globals.loadstring(text, ...)
  if type(text) == 'string' and byte(text) == 27 then
    return nil, 'bytecode is not allowed'
  end
  local chunk, problem = loadstring(text, ...)
  if not chunk then
    return nil, problem
  end
  return setfenv(chunk, environment)
end

function globals.load(reader, name)
  local parts = {}
  repeat
    local part = reader()
    parts[#parts + 1] = part
  until part == nil or part == ''
  return globals.loadstring(table.concat(parts), name or '=(load)')
end

----------------------------------------------------------------------------------------------------------------
-- libraries

local function copy(library)
  local functions = {}
  for name, value in pairs(library) do
    functions[name] = value
  end
  return functions
end

local tables, maths = copy(table), copy(math)

function tables.insert(...)
  check((...))
  return insert(...)
end

-- Chance is not the script's: a history must replay from its seed.
maths.random, maths.randomseed = nil, nil

local coroutines, resume = copy(coroutine), coroutine.resume

-- Each of them fails with what the host raised; a script sees what a server raises.
local function resumed(ok, ...)
  if ok then
    return true, ...
  end
  return false, caught((...))
end

function coroutines.resume(...)
  return resumed(resume(...))
end

globals._G = environment
globals.redis = facade(redis)
globals.table = facade(tables)
globals.math = facade(maths)
globals.coroutine = facade(coroutines)

local strings = copy(string)
globals.string = facade(strings)
-- Methods of strings: the metatable itself stays hidden behind a facade too.
local of_strings = getmetatable('')
of_strings.__index = strings
of_strings.__metatable = facade({ __index = globals.string })

local function run(script, keys, args)
  rawset(globals, 'KEYS', keys)
  rawset(globals, 'ARGV', args)
  return xpcall(script, fault_handler)
end

return run, environment
