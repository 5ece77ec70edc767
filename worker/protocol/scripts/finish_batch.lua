#!lua flags=allow-oom
-- The end of a batch. What it leaves in the storage is to be cleared away from now on.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: id status fields {field, value, ...} event ('' where nobody is to be told)
-- P..batch:<id>        hash  status, <status>_at       P..batch_open:<id>, P..batch_outputs:<id>, P..batch_errors:<id>
-- P..batches:active    zset                            P..batches:ended  zset  batch -> when
-- P..batches:littered  set   batches to clear up for   P..batches:totals hash  <status>
-- P..webhooks          zset  batch -> next try         P..webhook:<id>   hash  event
--
-- Returns 1, or 0 when it had ended before or is unknown.

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local key = P .. 'batch:' .. a.id
if redis.call('ZREM', P .. 'batches:active', a.id) == 0 then return 0 end
local now = tonumber(redis.call('TIME')[1])
redis.call('HSET', key, 'status', a.status, a.status .. '_at', now)
for i = 1, #a.fields, 2 do redis.call('HSET', key, a.fields[i], a.fields[i + 1]) end
redis.call('DEL', P .. 'batch_open:' .. a.id, P .. 'batch_outputs:' .. a.id, P .. 'batch_errors:' .. a.id)
redis.call('ZADD', P .. 'batches:ended', now, a.id)
redis.call('SADD', P .. 'batches:littered', a.id)
redis.call('HINCRBY', P .. 'batches:totals', a.status, 1)
if a.event ~= '' then
  redis.call('HSET', P .. 'webhook:' .. a.id, 'event', a.event, 'created_at', now)
  redis.call('ZADD', P .. 'webhooks', now, a.id)
end
return 1
