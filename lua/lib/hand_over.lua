-- hand_over(call, waiting, own): the lock, which was freed by this call, to the next ticket; `own` is queued behind
-- all others. Whatever stops that, the release is done and the reply says so.
local function hand_over(call, waiting, own)
  local grant = call.advance(call, waiting, own)
  local reply = { 'freed', call.now, grant.more, 'none' }
  if own and grant.ticket == own.ticket then
    if not grant.denied then
      reply = { 'freed', call.now, 0, 'granted', grant.token, grant.lease, others_wait(waiting, own.mode) }
    end
  elseif own and not grant.foreign and not join_queue(call, waiting, own) then
    local left = math.max(0, grant.ends - call.now)
    reply = { 'freed', call.now, grant.more, 'queued', waiting.living, left, waiting.last }
  end
  save_waiting(call, waiting)
  rewrite_queue(call, waiting)
  return reply
end
