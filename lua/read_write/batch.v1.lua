-- read_write/batch, version 1
-- EFFECT   Carries out calls of acquire and leave of this kind, of whichever locks, one after the other: each as if it
--          was alone, at its own time. Where it has taken long, the calls that are left are not carried out.
-- LAYOUT   1
-- KEYS     the keys of the first call, of the second, and so on
-- ARGV[1]  terms   as all the calls have them
-- ARGV[2]  us      how long it may take before it begins with another call
-- ARGV     of each call: `acquire` or `leave`; how many arguments follow; those, without the terms
-- RETURNS  the reply to each call that was carried out; nil for one that ended by an error
return run_batch({ acquire = run_acquire, leave = run_leave }, 5)
