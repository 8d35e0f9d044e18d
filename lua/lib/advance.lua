-- advance(call, waiting, own): the free lock to the next ticket. `own`, where there is one, is the ticket that this
-- call's reply can reach: it needs no message and no claim, and has the lock where the queue has nobody for it.
-- Returns a table: `ticket`, `token`, `lease` and `ends` of the grant, if there was one; `more` (0 or 1), whether to
-- call again; `foreign`, a key that is not ours: nothing has changed then; `denied`, the error where the grant
-- could not be given a lease: the lock is free then.
local function advance(call, waiting, own)
  if not own and waiting.living == 0 then return { more = 0 } end
  call.stored = read_counter(call)
  if not call.stored then return { more = 0, foreign = call.counter } end
  local winner, is_limit, dead = walk_queue(call, waiting, own)
  if not winner and own and (not is_limit or own.queued) then winner = own.ticket end
  if not winner then return { more = is_limit and dead > 0 and 1 or 0 } end
  return give(call, waiting, winner, own)
end
