#!lua flags=allow-oom
-- What nobody is left to do: jobs of dead workers go back, deadlines pass, jobs without a watcher end.
-- Every API and worker process runs it several times a lease; after a gap in that (the broker was down or paused, so
-- nobody could renew) leases are extended by the gap instead of expiring everyone.
--
-- KEYS[1] prefix P    ARGV[1] lease_ms   ARGV[2] max_attempts   ARGV[3..5] encoded terminal events: worker lost,
--                     expired, abandoned
-- P..counters  hash  tick         P..workers, P..deadlines, P..watchers  zset -> ms      P..held:<name>  hash
-- P..job:<id>  hash  attempts, crashes     P..suspects  zset     P..worker:<name>  hash  on_trial
--
-- Returns {requeued, failed, expired, abandoned}

-- include end_job

local P = KEYS[1]
local lease_ms, max_attempts = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()
local last = tonumber(redis.call('HGET', P .. 'counters', 'tick') or now)
redis.call('HSET', P .. 'counters', 'tick', now)
local gap = now - last
if gap > lease_ms / 2 then
  for _, name in ipairs({'workers', 'watchers'}) do
    local flat = redis.call('ZRANGE', P .. name, 0, -1, 'WITHSCORES')
    for i = 1, #flat, 2 do redis.call('ZADD', P .. name, tonumber(flat[i + 1]) + gap, flat[i]) end
  end
  return {0, 0, 0, 0}
end

-- Where suspects were being tried, they are blamed for the death, else all are. In doubt is besides what had hardly begun
-- there: it goes back as a suspect, the rest as it was. A job that was blamed too often ends, but only where nobody else
-- can have done it: it was there alone, or was tried alone (its third blame) with nobody else in doubt.
local num_requeued, num_failed, rows = 0, 0, {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', P .. 'workers', '-inf', now, 'LIMIT', 0, 16)) do
  local trial, is_tried = on_trial(P, worker)
  local ids, is_in_doubt, num_in_doubt = redis.call('HKEYS', P .. 'held:' .. worker), {}, 0
  for _, id in ipairs(ids) do
    is_in_doubt[id] = #trial == 0 or is_tried[id] or not is_past_its_crash(P, id)
    if is_in_doubt[id] then num_in_doubt = num_in_doubt + 1 end
  end
  for _, id in ipairs(ids) do
    local is_blamed = #trial == 0 or is_tried[id]
    local num_attempts = redis.call('HINCRBY', P .. 'job:' .. id, 'attempts', is_blamed and 1 or 0)
    redis.call('HINCRBY', P .. 'job:' .. id, 'crashes', is_in_doubt[id] and 1 or 0)
    local is_guilty = #trial == 0 or #ids == 1 or num_in_doubt == 1 and num_attempts > 2
    if is_blamed and is_guilty and num_attempts >= max_attempts then
      rows[#rows + 1] = end_job(P, id, 'failed', ARGV[3]) or nil
      num_failed = num_failed + 1
    else
      enqueue_again(P, id, is_in_doubt[id])
      num_requeued = num_requeued + 1
    end
  end
  redis.call('DEL', P .. 'held:' .. worker, P .. 'worker:' .. worker)
  redis.call('ZREM', P .. 'workers', worker)
end

local function end_due(name, state, entry)
  local num = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. name, '-inf', now, 'LIMIT', 0, 256)) do
    local row = end_job(P, id, state, entry)
    if row then rows[#rows + 1], num = row, num + 1 else redis.call('ZREM', P .. name, id) end
  end
  return num
end
local num_expired = end_due('deadlines', 'expired', ARGV[4])
local num_abandoned = end_due('watchers', 'cancelled', ARGV[5])
publish(P, rows)
return {num_requeued, num_failed, num_expired, num_abandoned}
