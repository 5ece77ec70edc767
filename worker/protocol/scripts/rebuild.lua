#!lua flags=allow-oom
-- Rebuild the counters from the jobs alone, and requeue running jobs that no worker holds.
--
-- KEYS[1] prefix P    ARGV[1..] ids of all jobs of the pool (the caller scans for them)
-- P..job:<id>  hash      P..held:<name>  hash      P..counters, P..tenants  hash      P..queue:<class>  zset
--
-- Returns {jobs waiting, jobs running, jobs requeued}

-- include end_job

local P = KEYS[1]
local depth, tokens, tenants, running, num_requeued = {}, {}, {}, 0, 0
local orphans = {}
for _, id in ipairs(ARGV) do
  local job = redis.call('HMGET', P .. 'job:' .. id, 'state', 'class', 'cost', 'tenant', 'worker')
  local state, class, cost = job[1], job[2], tonumber(job[3] or 0)
  if state == 'queued' then
    depth[class], tokens[class] = (depth[class] or 0) + 1, (tokens[class] or 0) + cost
  elseif state == 'running' then
    running = running + 1
    if redis.call('HEXISTS', P .. 'held:' .. job[5], id) == 0 then orphans[#orphans + 1] = id end
  end
  if state == 'queued' or state == 'running' then tenants[job[4]] = (tenants[job[4]] or 0) + cost end
end
local num_waiting = 0
for class = 0, 1 do
  local name = tostring(class)
  redis.call('HSET', P .. 'counters', 'depth:' .. name, depth[name] or 0, 'tokens:' .. name, tokens[name] or 0)
  num_waiting = num_waiting + (depth[name] or 0)
end
redis.call('HSET', P .. 'counters', 'running', running)
redis.call('DEL', P .. 'tenants')
for tenant, sum in pairs(tenants) do redis.call('HSET', P .. 'tenants', tenant, sum) end
for _, id in ipairs(orphans) do
  enqueue_again(P, id, false)
  num_requeued = num_requeued + 1
end
return {num_waiting + num_requeued, running - num_requeued, num_requeued}
