#!lua flags=allow-oom
-- A worker hands jobs back, with what they have produced. This is no attempt: nothing went wrong with them.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker jobs {{id, fence}, ...} is_leaving
-- P..held:<name>  hash  job -> fence      P..workers  zset      P..worker:<name>  hash      P..queue:<class>  zset
--
-- Returns how many jobs went back.

-- include end_job

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local num_back = 0
for _, job in ipairs(a.jobs) do
  if redis.call('HGET', P .. 'held:' .. a.worker, job[1]) == tostring(job[2]) then
    enqueue_again(P, job[1], false)
    num_back = num_back + 1
  end
end
if a.is_leaving then
  for _, id in ipairs(redis.call('HKEYS', P .. 'held:' .. a.worker)) do enqueue_again(P, id, false) end
  redis.call('ZREM', P .. 'workers', a.worker)
  redis.call('DEL', P .. 'worker:' .. a.worker, P .. 'held:' .. a.worker)
end
return num_back
