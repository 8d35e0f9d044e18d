-- mint(call, block): the first of so many tokens, larger than all before it (call.stored, of read_counter) and not
-- behind the clock: so they rise even where the counter was lost. A counter that runs ahead of the clock must
-- outlive its lead. Minted before anybody is told, so that no two tickets ever see one token; a block that reached
-- nobody is used again.
local function mint(call, block)
  if call.minted and block <= call.minted_block then return call.minted end
  local first = math.max(call.stored + 1, call.micros)
  local last = int(first + block - 1)
  if call.stored > 0 and first == call.micros then
    redis.call('SET', call.counter, last, 'KEEPTTL')
  else
    local lead = math.ceil((first - call.micros) / 1000)
    redis.call('SET', call.counter, last, 'PX', int(86400000 + lead))
  end
  call.minted, call.minted_block = first, block
  return first
end
