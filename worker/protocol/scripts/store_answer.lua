#!lua
-- Keep the answer of a response whose job has ended, for as long as is said from now on. Harmless to repeat.
--
-- KEYS[1] prefix P    ARGV[1] id   ARGV[2] answer   ARGV[3] for how long, ms
-- P..response:<id>  hash  answer      and the ledger
--
-- Returns 1, or 0 when the response was deleted meanwhile.

-- include response_ledger
-- include now

local P, id = KEYS[1], ARGV[1]
local now = now_ms()
local until_ms = string.format('%d', now + ARGV[3])
uncharge_expired(P, now)
local _, tenant = entry_of(P, id)
if not tenant or redis.call('EXISTS', P .. 'response:' .. id) == 0 then return 0 end
redis.call('HSET', P .. 'response:' .. id, 'answer', ARGV[2])
keep_until(P, id, until_ms)
redis.call('ZADD', P .. 'stored:ends', until_ms, id)
charge(P, id)
make_room(P, tenant, id)
return 1
