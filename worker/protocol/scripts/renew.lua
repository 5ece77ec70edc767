#!lua flags=allow-oom
-- Keep a worker's lease and reconcile: what it holds but no longer owns, what it owns but does not hold.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker lease_ms claim_number (last one whose reply arrived) jobs {id, ...}
--                                      info {field, value, ...}
-- P..workers      zset  worker -> lease deadline      P..worker:<name>  hash  info
-- P..held:<name>  hash  job -> fence                  P..job:<id>       hash  claim, the number it was claimed under
--
-- Returns the ids that the worker must drop.

-- include end_job

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local me = P .. 'worker:' .. a.worker
local now = now_ms()
redis.call('ZADD', P .. 'workers', now + a.lease_ms, a.worker)
redis.call('HSET', me, 'renewed_ms', now, unpack(a.info))

local owned, holds, lost = {}, {}, {}
local flat = redis.call('HGETALL', P .. 'held:' .. a.worker)
for i = 1, #flat, 2 do owned[flat[i]] = true end
for _, id in ipairs(a.jobs) do
  holds[id] = true
  if not owned[id] then lost[#lost + 1] = id end
end

-- What was claimed after the worker wrote this, or with a reply still on its way, is neither held nor lost.
for id in pairs(owned) do
  local claim_number = tonumber(redis.call('HGET', P .. 'job:' .. id, 'claim') or 0)
  if not holds[id] and claim_number <= a.claim_number then enqueue_again(P, id, false) end
end
return lost
