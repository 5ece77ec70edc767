#!lua flags=allow-oom
-- Close open places of a batch, whose rows lie in the parts given. All of them or none.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: id places {place, ...} completed failed usage {name, count, ...}
--                                      output_part error_part ('' for none)
-- P..batch_open:<id>     set   places that are jobs       P..batch:<id>   hash  completed, failed, usage, collected_ms
-- P..batch_outputs:<id>  list  names of stored parts      P..batch_errors:<id>  list
-- P..batches:totals      hash  lines:<state>
--
-- Returns 1, or 0 when one of the places is not open: then nothing has changed.

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local key, open = P .. 'batch:' .. a.id, P .. 'batch_open:' .. a.id
for _, place in ipairs(a.places) do
  if redis.call('SISMEMBER', open, place) == 0 then return 0 end
end
for _, place in ipairs(a.places) do redis.call('SREM', open, place) end
if a.output_part ~= '' then redis.call('RPUSH', P .. 'batch_outputs:' .. a.id, a.output_part) end
if a.error_part ~= '' then redis.call('RPUSH', P .. 'batch_errors:' .. a.id, a.error_part) end
for i = 1, #a.usage, 2 do redis.call('HINCRBY', key, a.usage[i], a.usage[i + 1]) end
for _, state in ipairs({'completed', 'failed'}) do
  redis.call('HINCRBY', key, state, a[state])
  redis.call('HINCRBY', P .. 'batches:totals', 'lines:' .. state, a[state])
end
local time = redis.call('TIME')
redis.call('HSET', key, 'collected_ms', time[1] * 1000 + math.floor(time[2] / 1000))
return 1
