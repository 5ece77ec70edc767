#!lua flags=allow-oom
-- Say which lines of a batch will be run, once its file has been read. Only the first word counts.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: id plan num_planned total failed model errors error_part ('' for none)
-- P..batch:<id>         hash  plan, planned, total, failed, model, errors, status, in_progress_at
-- P..batch_errors:<id>  list  names of stored parts      P..batches:totals  hash  lines:<state>
--
-- Returns 1, or 0 when the batch is unknown, has ended or has its plan.

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local key = P .. 'batch:' .. a.id
local batch = redis.call('HMGET', key, 'status', 'plan')
if not batch[1] or batch[2] or not redis.call('ZSCORE', P .. 'batches:active', a.id) then return 0 end
redis.call('HSET', key, 'plan', a.plan, 'planned', a.num_planned, 'total', a.total, 'failed', a.failed,
  'model', a.model, 'errors', a.errors)
if batch[1] == 'validating' then
  redis.call('HSET', key, 'status', 'in_progress', 'in_progress_at', redis.call('TIME')[1])
end
if a.error_part ~= '' then redis.call('RPUSH', P .. 'batch_errors:' .. a.id, a.error_part) end
redis.call('HINCRBY', P .. 'batches:totals', 'lines:failed', a.failed)
return 1
