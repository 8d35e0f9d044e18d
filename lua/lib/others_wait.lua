-- others_wait(waiting, mode): 1 where somebody waits for what a hold of this mode keeps from them, else 0: a read
-- keeps out only those that are to write.
local function others_wait(waiting, mode)
  return (mode == 'read' and waiting.writers or waiting.living) > 0 and 1 or 0
end
