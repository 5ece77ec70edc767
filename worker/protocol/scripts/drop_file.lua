#!lua flags=allow-oom
-- Forget a file that nobody holds. Its bytes are doomed: to be deleted next, or else by a sweep.
--
-- KEYS[1] prefix P    ARGV[1] file id   ARGV[2] its tenant   ARGV[3] now, seconds
-- P..file:<id>     string    P..files:of:<tenant>  zset  file -> place     P..files:expiring  zset  file -> when
-- P..files:bytes   hash      tenant -> bytes     P..files:doomed    zset  file -> since when its bytes are to be deleted
-- P..file_holds:<id>         zset  who reads it -> until when, seconds
--
-- Returns 'dropped', 'held' or 'unknown'.

local P, id, tenant = KEYS[1], ARGV[1], ARGV[2]
local record = redis.call('GET', P .. 'file:' .. id)
if not record then return 'unknown' end
record = cjson.decode(record)
if record.tenant ~= tenant then return 'unknown' end
if redis.call('ZCOUNT', P .. 'file_holds:' .. id, ARGV[3], '+inf') > 0 then return 'held' end
redis.call('DEL', P .. 'file:' .. id, P .. 'file_holds:' .. id)
redis.call('ZREM', P .. 'files:of:' .. tenant, id)
redis.call('ZREM', P .. 'files:expiring', id)
redis.call('HINCRBY', P .. 'files:bytes', tenant, -record.bytes)
redis.call('ZADD', P .. 'files:doomed', ARGV[3], id)
return 'dropped'
