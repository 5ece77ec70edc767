#!lua flags=allow-oom
-- Give up uploads that were silent for too long, and tell whose bytes are to be deleted.
--
-- KEYS[1] prefix P    ARGV[1] silent since, seconds   ARGV[2] now, seconds   ARGV[3] how many at most
-- P..files:uploading  zset  file -> when it was last heard of
-- P..files:doomed     zset  file -> since when its bytes are to be deleted
--
-- Returns ids of doomed files, the oldest first.

local P = KEYS[1]
for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'files:uploading', '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])) do
  redis.call('ZREM', P .. 'files:uploading', id)
  redis.call('ZADD', P .. 'files:doomed', ARGV[2], id)
end
return redis.call('ZRANGE', P .. 'files:doomed', 0, ARGV[3] - 1)
