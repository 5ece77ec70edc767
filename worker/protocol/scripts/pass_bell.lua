#!lua flags=allow-oom
-- A worker has heard the bell and could take nothing: another one shall hear it while jobs wait.
--
-- KEYS[1] prefix P
-- P..counters  hash  depth:<class>      P..bell  list
--
-- Returns 1 when jobs wait, 0 when the bell was an old one.

-- include end_job

local NUM_CLASSES = 2
local P = KEYS[1]
for class = 0, NUM_CLASSES - 1 do
  if tonumber(redis.call('HGET', P .. 'counters', 'depth:' .. class) or 0) > 0 then
    ring(P)
    return 1
  end
end
return 0
