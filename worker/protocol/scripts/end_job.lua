-- Included by every script that can end a job: one way to write the terminal event, so there is exactly one.

-- include now
-- include response_ledger

-- A frame is a msgpack array of [job id, sequence number, event]; the events come encoded and are embedded as they are.
local function publish(P, rows)
  local n = #rows
  if n == 0 then return end
  local header
  if n < 16 then header = string.char(0x90 + n) else header = '\220' .. string.char(math.floor(n / 256), n % 256) end
  local parts = {header}
  for _, row in ipairs(rows) do
    parts[#parts + 1] = '\147' .. cmsgpack.pack(row[1]) .. cmsgpack.pack(row[2]) .. row[3]
  end
  redis.call('PUBLISH', P .. 'frames', table.concat(parts))
end

local function leave_queue(P, id, class, cost)
  redis.call('ZREM', P .. 'queue:' .. class, id)
  redis.call('ZREM', P .. 'suspects', id)
  -- Nobody waits, so nobody is owed a turn.
  if redis.call('ZCARD', P .. 'queue:' .. class) == 0 then redis.call('DEL', P .. 'fair:' .. class) end
  redis.call('HINCRBY', P .. 'counters', 'depth:' .. class, -1)
  redis.call('HINCRBY', P .. 'counters', 'tokens:' .. class, -cost)
end

local function ring(P, class)
  local bell = P .. 'bell:' .. class
  if redis.call('LLEN', bell) < 64 then redis.call('RPUSH', bell, class) end
end

-- The suspects that a worker has on trial, of those that it still holds: a list of them, and a set.
local function on_trial(P, worker)
  local ids, is_tried = {}, {}
  for id in string.gmatch(redis.call('HGET', P .. 'worker:' .. worker, 'on_trial') or '', '%S+') do
    if redis.call('HEXISTS', P .. 'held:' .. worker, id) == 1 then ids[#ids + 1], is_tried[id] = id, true end
  end
  return ids, is_tried
end

-- Whether a job has got so far past where a worker died with it that it is no suspect any more: by 4 tokens a sequence.
-- From the third death on that it was in doubt for it takes twice as many each time, up to 64, or one that dies a little
-- later each time would be cleared for ever.
local function is_past_its_crash(P, id)
  local job = redis.call('HMGET', P .. 'job:' .. id, 'suspect_len', 'sequences', 'crashes')
  local num_tokens = 4 * 2 ^ math.min(math.max(tonumber(job[3] or 0) - 2, 0), 4)
  return redis.call('LLEN', P .. 'out:' .. id) > tonumber(job[1] or 0) + num_tokens * tonumber(job[2] or 1)
end

-- Back into the queue, ahead of what has not started. A suspect (its worker died) waits apart: in order of class, one
-- that was blamed twice behind the others. Whoever is put back while on trial stays one.
local function enqueue_again(P, id, is_suspect)
  local key = P .. 'job:' .. id
  local job = redis.call('HMGET', key, 'class', 'cost', 'rank', 'worker', 'attempts')
  local tried = redis.call('HGET', P .. 'worker:' .. job[4], 'on_trial') or ''
  local is_tried = string.find(' ' .. tried .. ' ', ' ' .. id .. ' ', 1, true)
  redis.call('HDEL', P .. 'held:' .. job[4], id)
  redis.call('HSET', key, 'state', 'queued', 'worker', '', 'suspect_len', redis.call('LLEN', P .. 'out:' .. id))
  redis.call('HINCRBY', P .. 'counters', 'running', -1)
  redis.call('HINCRBY', P .. 'counters', 'depth:' .. job[1], 1)
  redis.call('HINCRBY', P .. 'counters', 'tokens:' .. job[1], job[2])
  if is_suspect or is_tried then
    local later = tonumber(job[5]) > 1 and 5e12 or 0
    redis.call('ZADD', P .. 'suspects', tonumber(job[1]) * 1e13 + later + now_ms(), id)
  else
    redis.call('ZADD', P .. 'queue:' .. job[1], tonumber(job[3]) - 1e12, id)
  end
  ring(P, job[1])
end

-- Returns the row to publish, or false when the job is unknown or has ended before.
local function end_job(P, id, state, entry)
  local key = P .. 'job:' .. id
  local job = redis.call('HMGET', key, 'state', 'tenant', 'class', 'cost', 'worker', 'retention_ms')
  if job[1] == 'queued' then
    leave_queue(P, id, job[3], job[4])
  elseif job[1] == 'running' then
    redis.call('HDEL', P .. 'held:' .. job[5], id)
    redis.call('HINCRBY', P .. 'counters', 'running', -1)
  else
    return false
  end
  if redis.call('HINCRBY', P .. 'tenants', job[2], -job[4]) <= 0 then redis.call('HDEL', P .. 'tenants', job[2]) end
  redis.call('ZREM', P .. 'deadlines', id)
  redis.call('ZREM', P .. 'watchers', id)
  redis.call('HSET', key, 'state', state)
  redis.call('HDEL', key, 'body')
  local seq = redis.call('RPUSH', P .. 'out:' .. id, entry)
  redis.call('PEXPIRE', key, job[6])
  redis.call('PEXPIRE', P .. 'out:' .. id, job[6])
  settle(P, id)
  return {id, seq, entry}
end
