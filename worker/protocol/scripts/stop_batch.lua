#!lua flags=allow-oom
-- Stop a batch before its end: no line is begun any more.
--
-- KEYS[1] prefix P    ARGV[1] batch id   ARGV[2] cause: 'cancelled', or 'expired' when its time is over
-- P..batch:<id>  hash  status, cause, expires_at, cancelling_at, finalizing_at
--
-- Returns the status it had before, or 'unknown'. It is stopped now if that was 'validating' or 'in_progress'.

local P, id, cause = KEYS[1], ARGV[1], ARGV[2]
local key = P .. 'batch:' .. id
local batch = redis.call('HMGET', key, 'status', 'expires_at')
if not batch[1] then return 'unknown' end
if batch[1] ~= 'validating' and batch[1] ~= 'in_progress' then return batch[1] end
local now = tonumber(redis.call('TIME')[1])
if cause == 'cancelled' then
  redis.call('HSET', key, 'cause', cause, 'status', 'cancelling', 'cancelling_at', now)
elseif now >= tonumber(batch[2]) then
  redis.call('HSET', key, 'cause', cause, 'status', 'finalizing', 'finalizing_at', now)
end
return batch[1]
