-- Keep the record of a file whose bytes are in storage, if its tenant has room for it. A repeat changes nothing.
--
-- KEYS[1] prefix P    ARGV[1] file id  [2] tenant  [3] record, JSON  [4] bytes  [5] place in the order of creation
--                     [6] when it expires, seconds, or ''
--                     [7] bytes the tenant may have; '' for a file that was not uploaded, which has no limit
-- P..file:<id>     string    P..files:of:<tenant>  zset  file -> place     P..files:expiring  zset  file -> when
-- P..files:bytes   hash      tenant -> bytes     P..files:uploading zset  file -> when it was last heard of
--
-- Returns 'kept'; 'full'; or 'lost' when the upload was taken for dead and its bytes may be gone.

local P, id, tenant = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', P .. 'file:' .. id) == 1 then return 'kept' end
if ARGV[7] ~= '' then
  if not redis.call('ZSCORE', P .. 'files:uploading', id) then return 'lost' end
  local used = tonumber(redis.call('HGET', P .. 'files:bytes', tenant) or 0)
  if used + tonumber(ARGV[4]) > tonumber(ARGV[7]) then return 'full' end
end
redis.call('SET', P .. 'file:' .. id, ARGV[3])
redis.call('ZADD', P .. 'files:of:' .. tenant, ARGV[5], id)
redis.call('HINCRBY', P .. 'files:bytes', tenant, ARGV[4])
if ARGV[6] ~= '' then redis.call('ZADD', P .. 'files:expiring', ARGV[6], id) end
redis.call('ZREM', P .. 'files:uploading', id)
return 'kept'
