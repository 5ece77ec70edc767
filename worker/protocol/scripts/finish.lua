#!lua flags=allow-oom
-- End a job that its worker cannot run at all, fenced like a step.
--
-- KEYS[1] prefix P    ARGV[1] worker   ARGV[2] job id   ARGV[3] fence   ARGV[4] terminal state   ARGV[5] encoded event
-- P..held:<name>  hash  job -> fence      and what ending a job touches
--
-- Returns 1, or 0 when the worker does not own the job.

-- include end_job

local P, id = KEYS[1], ARGV[2]
if redis.call('HGET', P .. 'held:' .. ARGV[1], id) ~= ARGV[3] then return 0 end
local row = end_job(P, id, ARGV[4], ARGV[5])
if row then publish(P, {row}) end
return 1
