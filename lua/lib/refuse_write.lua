-- refuse_write(call, waiting, me): my owner reads: I would wait for myself, and so would all behind me.
local function refuse_write(call, waiting, me)
  drop_ticket(waiting, me.ticket)
  pass_on(call, waiting, advance_shared(call, waiting).more)
  save_waiting(call, waiting)
  return { 'would_deadlock', call.now }
end
