#!lua
-- Take a new batch on. Denied by Redis when it is out of memory.
--
-- KEYS[1] prefix P    ARGV[1] batch id   ARGV[2] tenant   ARGV[3] the order as JSON   ARGV[4] window, seconds
-- P..batch:<id>     hash  order, status, cursor, created_at, expires_at: what load_batch gives
-- P..batches:active zset  batch -> created_at        P..batches:of:<tenant>  zset  batch -> serial number
--
-- Returns 1, or 0 when it is there already.

local P, id, tenant = KEYS[1], ARGV[1], ARGV[2]
local key = P .. 'batch:' .. id
if redis.call('EXISTS', key) == 1 then return 0 end
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', key, 'order', ARGV[3], 'status', 'validating', 'created_at', now,
  'expires_at', now + tonumber(ARGV[4]), 'cursor', 0)
redis.call('ZADD', P .. 'batches:active', now, id)
redis.call('ZADD', P .. 'batches:of:' .. tenant, redis.call('INCR', P .. 'batches:serial'), id)
return 1
