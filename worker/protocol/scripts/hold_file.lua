-- Keep a file from being deleted while somebody reads it.
--
-- KEYS[1] prefix P    ARGV[1] file id   ARGV[2] its tenant   ARGV[3] who reads it   ARGV[4] until when, seconds
-- P..file:<id>  string    P..file_holds:<id>  zset  who reads it -> until when
--
-- Returns the file's record, or nil when the tenant has no such file.

local P, id = KEYS[1], ARGV[1]
local record = redis.call('GET', P .. 'file:' .. id)
if not record or cjson.decode(record).tenant ~= ARGV[2] then return nil end
redis.call('ZADD', P .. 'file_holds:' .. id, ARGV[4], ARGV[3])
return record
