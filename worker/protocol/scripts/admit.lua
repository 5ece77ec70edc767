#!lua
-- Admit a job, or say why not. The authority on every bound, in one atomic step.
-- Denied by Redis when it is out of memory; every other script is allowed then, so that running jobs can end.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: id tenant class cost sequences weight max_depth max_tokens max_tenant_tokens
--                                      max_wait_ms timeout_ms watch_ms retention_ms idempotency_key client_state
--                     ARGV[2] the encoded job
-- P..counters  hash  depth:<class>, tokens:<class>, clock:<class>      P..queue:<class>  zset  job -> rank
-- P..tenants   hash  tenant -> tokens                                  P..fair:<class>   zset  tenant -> finish tag
-- P..drain     hash  rate, tokens a second                             P..job:<id>       hash  the job
-- P..deadlines, P..watchers  zset  job -> ms                           P..idem:<tenant>:<key>  string  job id
--
-- Returns {'admitted'|'duplicate'|'depth'|'tokens'|'tenant'|'wait', job id, queued tokens ahead, drain rate,
--          jobs waiting in the class, tokens of the tenant}, the last two with the job

-- include end_job

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local class = tostring(a.class)
local job_key, idem_key = P .. 'job:' .. a.id, P .. 'idem:' .. a.tenant .. ':' .. a.idempotency_key

local rate = tonumber(redis.call('HGET', P .. 'drain', 'rate') or 0)
local depth = tonumber(redis.call('HGET', P .. 'counters', 'depth:' .. class) or 0)
local tokens = tonumber(redis.call('HGET', P .. 'counters', 'tokens:' .. class) or 0)
local ahead = tokens
for more_urgent = 0, a.class - 1 do
  ahead = ahead + tonumber(redis.call('HGET', P .. 'counters', 'tokens:' .. more_urgent) or 0)
end
local of_tenant = tonumber(redis.call('HGET', P .. 'tenants', a.tenant) or 0)
local function answer(word, id) return {word, id or a.id, ahead, tostring(rate), depth, of_tenant} end

if redis.call('EXISTS', job_key) == 1 then return answer('duplicate') end
if a.idempotency_key ~= '' then
  local existing = redis.call('GET', idem_key)
  if existing and redis.call('EXISTS', P .. 'job:' .. existing) == 1 then return answer('duplicate', existing) end
end
if depth >= a.max_depth then return answer('depth') end
-- An empty queue takes any job: one larger than the bound would otherwise never be served.
if depth > 0 and tokens + a.cost > a.max_tokens then return answer('tokens') end
if of_tenant > 0 and of_tenant + a.cost > a.max_tenant_tokens then return answer('tenant') end
if rate > 0 and ahead / rate * 1000 > a.max_wait_ms then return answer('wait') end

-- Start-time fair queueing: a tenant's next job starts where its last one ends, but never before the clock.
local clock = tonumber(redis.call('HGET', P .. 'counters', 'clock:' .. class) or 0)
local start = math.max(clock, tonumber(redis.call('ZSCORE', P .. 'fair:' .. class, a.tenant) or 0))
local rank = start + a.cost / a.weight
redis.call('ZADD', P .. 'fair:' .. class, rank, a.tenant)

local now = now_ms()
redis.call('HSET', job_key, 'body', ARGV[2], 'state', 'queued', 'tenant', a.tenant, 'class', class, 'cost', a.cost,
  'sequences', a.sequences, 'start', tostring(start), 'rank', tostring(rank), 'fence', 0, 'attempts', 0, 'worker', '',
  'retention_ms', a.retention_ms, 'client_state', a.client_state)
redis.call('ZADD', P .. 'queue:' .. class, rank, a.id)
redis.call('HINCRBY', P .. 'counters', 'depth:' .. class, 1)
redis.call('HINCRBY', P .. 'counters', 'tokens:' .. class, a.cost)
redis.call('HINCRBY', P .. 'tenants', a.tenant, a.cost)
redis.call('ZADD', P .. 'deadlines', now + a.timeout_ms, a.id)
if a.watch_ms > 0 then redis.call('ZADD', P .. 'watchers', now + a.watch_ms, a.id) end
if a.idempotency_key ~= '' then redis.call('SET', idem_key, a.id, 'PX', a.timeout_ms + a.retention_ms) end
ring(P, class)
depth, of_tenant = depth + 1, of_tenant + a.cost
return answer('admitted')
