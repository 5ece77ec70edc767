#!lua flags=allow-oom
-- Drop what is kept of a response; its job is the caller's to end.
--
-- KEYS[1] prefix P    ARGV[1] id
-- P..response:<id>  hash      and the ledger

-- include response_ledger

redis.call('DEL', KEYS[1] .. 'response:' .. ARGV[1])
uncharge(KEYS[1], ARGV[1])
