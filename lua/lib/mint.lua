-- mint(call, block): the first of so many tokens, larger than all before it (call.stored, of read_counter) and not
-- behind the clock: so they rise even where the counter was lost. A counter that runs ahead of the clock must
-- outlive its lead. Minted before anybody is told, so that no two tickets ever see one token; a block that reached
-- nobody is used again. A read, which has a block of 0, mints none: it shows the last one, and where none is
-- remembered one is made, or two reads with a write in between could show the same.
local function mint(call, block)
  if call.minted and block <= call.minted_block then
    return block == 0 and call.minted + call.minted_block - 1 or call.minted
  end
  if block == 0 and call.stored > 0 then return call.stored end
  local first = math.max(call.stored + 1, call.micros)
  block = math.max(1, block)
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
