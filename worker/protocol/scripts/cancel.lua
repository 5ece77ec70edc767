#!lua flags=allow-oom
-- End a waiting or running job because nobody wants it. Its worker learns of it by its next step or renewal.
--
-- KEYS[1] prefix P    ARGV[1] job id   ARGV[2] encoded terminal event
-- P..job:<id>  hash      and what ending a job touches
--
-- Returns 'queued' or 'running' when that job was cancelled now, else its terminal state, or 'unknown'.

-- include end_job

local P, id = KEYS[1], ARGV[1]
local state = redis.call('HGET', P .. 'job:' .. id, 'state')
if not state then return 'unknown' end
local row = end_job(P, id, 'cancelled', ARGV[2])
if row then publish(P, {row}) end
return state
