#!lua flags=allow-oom
-- A worker has heard the bell and could take nothing: another one shall hear it while jobs wait.
--
-- KEYS[1] prefix P    ARGV[1] class
-- P..counters  hash  depth:<class>      P..bell:<class>  list
--
-- Returns 1 when jobs of the class wait, 0 when the bell was an old one.

-- include end_job

local P, class = KEYS[1], ARGV[1]
if tonumber(redis.call('HGET', P .. 'counters', 'depth:' .. class) or 0) == 0 then return 0 end
ring(P, class)
return 1
