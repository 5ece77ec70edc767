#!lua flags=allow-oom
-- Move a batch's cursor over places of its plan: each is a job now, or is an error in the part given.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: id from to cause ('' while it goes on) open {place, ...} failed
--                                      error_part ('' for none)
-- P..batch:<id>         hash  cursor, cause, failed      P..batch_open:<id>  set  places that are jobs
-- P..batch_errors:<id>  list  names of stored parts      P..batches:totals   hash  lines:<state>
--
-- Returns 1, or 0 when the cursor stands elsewhere or the batch was stopped meanwhile: then nothing has changed.

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local key = P .. 'batch:' .. a.id
local batch = redis.call('HMGET', key, 'cursor', 'cause')
if batch[1] ~= tostring(a.from) or (batch[2] or '') ~= a.cause then return 0 end
redis.call('HSET', key, 'cursor', a.to)
for _, place in ipairs(a.open) do redis.call('SADD', P .. 'batch_open:' .. a.id, place) end
if a.error_part ~= '' then redis.call('RPUSH', P .. 'batch_errors:' .. a.id, a.error_part) end
redis.call('HINCRBY', key, 'failed', a.failed)
redis.call('HINCRBY', P .. 'batches:totals', 'lines:failed', a.failed)
return 1
