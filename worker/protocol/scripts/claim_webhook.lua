#!lua flags=allow-oom
-- Take a due webhook to send it. Unless it is dropped after that, it is due again later, ever later.
--
-- KEYS[1] prefix P    ARGV[1] batch id   ARGV[2] pause after the first try, seconds   ARGV[3] longest pause
-- P..webhooks  zset  batch -> next try, seconds      P..webhook:<id>  hash  event, created_at, num_tries
--
-- Returns {event, created_at, number of this try}, or nothing when it is not due.

local P, id = KEYS[1], ARGV[1]
local now, due = tonumber(redis.call('TIME')[1]), redis.call('ZSCORE', P .. 'webhooks', id)
if not due or tonumber(due) > now then return {} end
local num_tries = redis.call('HINCRBY', P .. 'webhook:' .. id, 'num_tries', 1)
local pause = math.min(tonumber(ARGV[2]) * 2 ^ (num_tries - 1), tonumber(ARGV[3]))
redis.call('ZADD', P .. 'webhooks', now + pause, id)
local told = redis.call('HMGET', P .. 'webhook:' .. id, 'event', 'created_at')
return {told[1], told[2], num_tries}
