-- tail_of(hold): `<owner>[ <label>]`, the end of a hold's and of an entry's text.
local function tail_of(hold)
  return hold.label == '' and hold.owner or hold.owner .. ' ' .. hold.label
end
