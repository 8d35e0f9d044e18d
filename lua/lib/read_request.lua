-- read_request(ticket, text): what a client asks for with this ticket, in the words that its entry would have:
-- `<mode> <lease> <block> <owner>[ <label>]`. An error where it is nothing of the kind. A table of the ticket, the
-- `text` and its parts; `tail` is `<owner>[ <label>]`, the end of a hold's text and of an entry's.
local function read_request(ticket, text)
  local mode, lease, block, tail, owner = text:match('^(%S+) (%d+) (%d+) ((%S+).*)$')
  return {
    ticket = ticket, text = text, mode = mode, lease = lease + 0, block = block + 0, tail = tail, owner = owner,
  }
end
