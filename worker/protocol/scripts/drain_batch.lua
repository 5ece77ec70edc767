#!lua flags=allow-oom
-- A batch all of whose lines have ended goes on to have its files put together.
--
-- KEYS[1] prefix P    ARGV[1] batch id
-- P..batch:<id>  hash  status, cursor, planned, finalizing_at      P..batch_open:<id>  set
--
-- Returns 1, or 0 when it is not in progress or not all of its lines have ended.

local P, id = KEYS[1], ARGV[1]
local key = P .. 'batch:' .. id
local batch = redis.call('HMGET', key, 'status', 'cursor', 'planned')
if batch[1] ~= 'in_progress' or batch[2] ~= batch[3] or redis.call('EXISTS', P .. 'batch_open:' .. id) == 1 then
  return 0
end
redis.call('HSET', key, 'status', 'finalizing', 'finalizing_at', redis.call('TIME')[1])
return 1
