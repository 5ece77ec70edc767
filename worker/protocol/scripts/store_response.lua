#!lua
-- Keep what a response was asked, for as long as is said, and the responses it goes on from as long as that.
-- Older responses make room for it.
--
-- KEYS[1] prefix P    ARGV[1] id   ARGV[2] tenant   ARGV[3] record   ARGV[4] for how long, ms   ARGV[5] 1 with its job
--                     ARGV[6] bytes for all tenants   ARGV[7] bytes for one tenant   ARGV[8..] ids of its ancestors
-- P..response:<id>  hash  record, has_job      and the ledger
--
-- Returns 'stored', 'too_large' when it alone is more than a tenant may have, or 'full'

-- include response_ledger
-- include now

local P, id, tenant = KEYS[1], ARGV[1], ARGV[2]
local now = now_ms()
local until_ms = string.format('%d', now + ARGV[4])
redis.call('HSET', P .. 'stored:limits', 'total', ARGV[6], 'share', ARGV[7])
uncharge_expired(P, now)
redis.call('HSET', P .. 'response:' .. id, 'record', ARGV[3])
if ARGV[5] == '1' then redis.call('HSET', P .. 'response:' .. id, 'has_job', 1) end
redis.call('PEXPIREAT', P .. 'response:' .. id, until_ms)
redis.call('ZADD', P .. 'stored:of:' .. tenant, 'NX', now, id)
redis.call('ZADD', P .. 'stored:ends', until_ms, id)
local bytes = charge(P, id, tenant)
local verdict = bytes > tonumber(ARGV[7]) and 'too_large' or not make_room(P, tenant, id) and 'full' or 'stored'
if verdict ~= 'stored' then
  redis.call('DEL', P .. 'response:' .. id)  -- its job is the caller's to end
  uncharge(P, id)
  return verdict
end
if not is_running(P, id) then settle(P, id) end
for i = 8, #ARGV do
  keep_until(P, ARGV[i], until_ms, 'GT')
  redis.call('ZADD', P .. 'stored:ends', 'XX', 'GT', until_ms, ARGV[i])
end
return verdict
