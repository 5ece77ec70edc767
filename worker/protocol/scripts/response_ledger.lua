-- Included by every script that changes what is kept of a response: how many bytes each tenant's stored responses take.
--
-- response:<id>            hash  record, answer; has_job when the job's own keys are kept as long, so count with it
-- stored:limits            hash  total, share: bytes that all tenants and that one tenant may take
-- stored:bytes             hash  tenant -> bytes of its responses
-- stored:entries           hash  id -> '<bytes> <tenant>'
-- stored:ends              zset  id -> when Redis lets it expire, ms
-- stored:of:<tenant>       zset  id -> when it was saved, ms

local ENTRY_BYTES = 512  -- what the ledger itself and the key take, roughly

local function entry_of(P, id)
  local bytes, tenant = string.match(redis.call('HGET', P .. 'stored:entries', id) or '', '^(%d+) (.*)$')
  return tonumber(bytes), tenant
end

local function uncharge(P, id)
  local bytes, tenant = entry_of(P, id)
  if not bytes then return end
  redis.call('HDEL', P .. 'stored:entries', id)
  redis.call('ZREM', P .. 'stored:ends', id)
  redis.call('ZREM', P .. 'stored:of:' .. tenant, id)
  -- With the last one goes the sum, so no error in it outlives a tenant's responses.
  if redis.call('ZCARD', P .. 'stored:of:' .. tenant) == 0 then
    redis.call('HDEL', P .. 'stored:bytes', tenant)
  else
    redis.call('HINCRBY', P .. 'stored:bytes', tenant, -bytes)
  end
end

local function uncharge_expired(P, now)
  local due = redis.call('ZRANGEBYSCORE', P .. 'stored:ends', '-inf', now, 'LIMIT', 0, 1000)
  for _, id in ipairs(due) do uncharge(P, id) end
end

local function keys_of(P, id)
  local keys = {P .. 'response:' .. id}
  if redis.call('HEXISTS', keys[1], 'has_job') == 1 then
    keys[2], keys[3] = P .. 'job:' .. id, P .. 'out:' .. id
  end
  return keys
end

-- Measures what is kept of a response, which must be in the ledger or come with its tenant.
local function charge(P, id, tenant)
  local charged, known = entry_of(P, id)
  local bytes = ENTRY_BYTES
  for _, key in ipairs(keys_of(P, id)) do bytes = bytes + (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0) end
  redis.call('HSET', P .. 'stored:entries', id, string.format('%d %s', bytes, known or tenant))
  redis.call('HINCRBY', P .. 'stored:bytes', known or tenant, bytes - (charged or 0))
  return bytes
end

local function forget(P, id)
  for _, key in ipairs(keys_of(P, id)) do redis.call('DEL', key) end
  uncharge(P, id)
end

local function is_running(P, id)
  local state = redis.call('HGET', P .. 'job:' .. id, 'state')
  return state == 'queued' or state == 'running'
end

-- The oldest of a tenant's responses that has ended, or nil; `place` is where to look from, and where it was found.
local function oldest_ended(P, tenant, spared, place)
  while true do
    local id = redis.call('ZRANGE', P .. 'stored:of:' .. tenant, place, place)[1]
    if not id or not (id == spared or is_running(P, id)) then return id, place end
    place = place + 1
  end
end

local function largest_tenant(P)
  local flat, total, largest, most = redis.call('HGETALL', P .. 'stored:bytes'), 0, nil, -1
  for i = 1, #flat, 2 do
    local bytes = tonumber(flat[i + 1])
    total = total + bytes
    if bytes > most then largest, most = flat[i], bytes end
  end
  return largest, total
end

-- Forgets responses until the rest is within the limits: of `tenant` while it has more than its share, then of whoever
-- has the most. `spared` stays. False when that was not enough: what is left has not ended.
local function make_room(P, tenant, spared)
  local limits = redis.call('HMGET', P .. 'stored:limits', 'total', 'share')
  if not limits[1] then return true end
  local places = {}
  while true do
    local loser, total = largest_tenant(P)
    if tonumber(redis.call('HGET', P .. 'stored:bytes', tenant) or 0) > tonumber(limits[2]) then
      loser = tenant
    elseif total <= tonumber(limits[1]) then
      return true
    end
    local id, place = oldest_ended(P, loser, spared, places[loser] or 0)
    if not id then return false end
    places[loser] = place
    forget(P, id)
  end
end

-- All that is kept of a response expires at once, so the ledger needs to know one time only.
local function keep_until(P, id, until_ms, ...)
  for _, key in ipairs(keys_of(P, id)) do redis.call('PEXPIREAT', key, until_ms, ...) end
end

-- The job of a response has ended: its keys are what they will be, and stay with the response.
local function settle(P, id)
  if redis.call('HEXISTS', P .. 'response:' .. id, 'has_job') == 0 then return end
  local _, tenant = entry_of(P, id)
  if not tenant then return end
  keep_until(P, id, redis.call('ZSCORE', P .. 'stored:ends', id))
  charge(P, id)
  make_room(P, tenant, id)
end
