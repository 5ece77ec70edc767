#!lua flags=allow-oom
-- Claim what a worker's free pages can hold, under a fence. Repeating a claim number returns the same jobs.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker number page_size fingerprint rooms {{tokens, jobs}, ...} by class
-- P..workers        zset  worker -> lease deadline          P..held:<name>    hash  job -> fence
-- P..worker:<name>  hash  claim_number, claim_ids, on_trial, num_cleared
-- P..suspects, P..queue:<class>  zset                       P..job:<id>, P..out:<id>  the job and its replay list
-- P..counters, P..drain, P..fair:<class>
--
-- Returns a list of {job id, fence, encoded job, attempts, {replay entries}}

-- include end_job

local NUM_CLASSES = 2
local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local me, held = P .. 'worker:' .. a.worker, P .. 'held:' .. a.worker
local now = now_ms()

-- Without a lease nobody would requeue what is claimed here. The next renewal brings it.
if not redis.call('ZSCORE', P .. 'workers', a.worker) then return {} end

local function handed(id, fence)
  local job = redis.call('HMGET', P .. 'job:' .. id, 'body', 'attempts')
  return {id, fence, job[1], tonumber(job[2]), redis.call('LRANGE', P .. 'out:' .. id, 0, -1)}
end

if redis.call('HGET', me, 'claim_number') == tostring(a.number) then
  local again = {}
  for id in string.gmatch(redis.call('HGET', me, 'claim_ids'), '%S+') do
    local fence = redis.call('HGET', held, id)
    if fence then again[#again + 1] = handed(id, tonumber(fence)) end
  end
  return again
end

local claimed, urgent_tokens = {}, 0
local is_first_claim = redis.call('HEXISTS', me, 'claim_number') == 0

-- False when the job does not fit. Each sequence may waste all but one slot of its last page. What a class takes is
-- taken from those behind it too, but not from those before it: to them it makes way.
local function take(id)
  local key = P .. 'job:' .. id
  local job = redis.call('HMGET', key, 'cost', 'sequences', 'class', 'start', 'fingerprint')
  local cost, class = tonumber(job[1]), tonumber(job[3])
  local need = cost + tonumber(job[2]) * (a.page_size - 1)
  local room = a.rooms[class + 1]
  if need > room[1] or room[2] < 1 then return false end
  for behind = class + 1, NUM_CLASSES do
    a.rooms[behind] = {a.rooms[behind][1] - need, a.rooms[behind][2] - 1}
  end
  if class == 0 then urgent_tokens = urgent_tokens + cost end
  leave_queue(P, id, class, cost)
  redis.call('HINCRBY', P .. 'counters', 'running', 1)
  local fence = redis.call('HINCRBY', key, 'fence', 1)
  redis.call('HSET', key, 'state', 'running', 'worker', a.worker, 'claim', a.number,
    'fingerprint', job[5] or a.fingerprint)
  redis.call('HSET', held, id, fence)
  -- The clock follows the job in service; tenants whose tag it has passed have nothing left to remember.
  local clock = math.max(tonumber(job[4]), tonumber(redis.call('HGET', P .. 'counters', 'clock:' .. class) or 0))
  redis.call('HSET', P .. 'counters', 'clock:' .. class, tostring(clock))
  redis.call('ZREMRANGEBYSCORE', P .. 'fair:' .. class, '-inf', clock)
  claimed[#claimed + 1] = handed(id, fence)
  return true
end

-- Suspects (their worker died) are tried a few at a time, so that a poison job dies beside as few neighbours as can be:
-- one at first, one more with each that this worker has seen past its crash. One that was blamed twice is tried alone,
-- and nothing of its class or behind it joins. A more urgent one takes the turn of another. Room is kept for one that
-- does not fit yet, or small jobs would overtake it for ever; but nobody waits for a class behind its own.
local num_open = NUM_CLASSES
local num_tried_at_once = 1 + tonumber(redis.call('HGET', me, 'num_cleared') or 0)
local function suspect_of(id)
  local job = redis.call('HMGET', P .. 'job:' .. id, 'class', 'attempts')
  return {id = id, class = tonumber(job[1]), is_alone = tonumber(job[2]) > 1}
end
local trial, is_taken = {}, true  -- the more urgent ones first
for i, id in ipairs(on_trial(P, a.worker)) do trial[i] = suspect_of(id) end
while is_taken do
  local first = redis.call('ZRANGE', P .. 'suspects', 0, 0)[1]
  if not first then break end
  local suspect = suspect_of(first)
  -- Whoever is tried alone has no company, so it is enough to look at the first.
  local most = (suspect.is_alone or trial[1] and trial[1].is_alone) and 1 or num_tried_at_once
  local num_kept = math.min(#trial, most - 1)
  if num_kept < #trial and trial[num_kept + 1].class <= suspect.class then break end
  is_taken = take(first)
  if is_taken then
    for _ = num_kept + 1, #trial do enqueue_again(P, table.remove(trial).id, true) end
    table.insert(trial, suspect.class == 0 and 1 or #trial + 1, suspect)
  else
    num_open = suspect.class
  end
end
if trial[1] and trial[1].is_alone then num_open = math.min(num_open, trial[1].class) end
local tried_ids = {}
for i, suspect in ipairs(trial) do tried_ids[i] = suspect.id end
redis.call('HSET', me, 'on_trial', table.concat(tried_ids, ' '))

local class = 0
while class < num_open do
  local first = redis.call('ZRANGE', P .. 'queue:' .. class, 0, 0)[1]
  if not first then
    class = class + 1
  elseif not take(first) then
    break
  end
end

-- The drain rate is what interactive jobs leave the queue at while more of them wait: an idle server is not a slow one,
-- and batch jobs wait for other things. What a claim takes that leaves some waiting counts, for its jobs fill the places
-- that these wait for. A wait shorter than LEAST_MS says nothing. The sums are halved when they reach far back; after a
-- window in which nobody waited, nothing is known any more. Nor does a gap count in which there was nobody to claim.
local WINDOW_MS, LEAST_MS = 60000, 2000
local drain = redis.call('HMGET', P .. 'drain', 'since', 'last_wait', 'is_backlogged', 'new_tokens', 'new_ms', 'tokens',
  'busy_ms', 'rate')
local gap, last_wait = math.max(0, now - tonumber(drain[1] or now)), tonumber(drain[2] or 0)
local was_backlogged = drain[3] == '1'
local new_tokens, new_ms = tonumber(drain[4] or 0) + urgent_tokens, tonumber(drain[5] or 0)
local tokens, busy_ms, rate = tonumber(drain[6] or 0), tonumber(drain[7] or 0), drain[8] or '0'
local is_backlogged = redis.call('ZCARD', P .. 'queue:0') > 0
if was_backlogged and not is_first_claim then new_ms = new_ms + math.min(gap, WINDOW_MS) end
if new_ms >= LEAST_MS then
  tokens, busy_ms, new_tokens, new_ms = tokens + new_tokens, busy_ms + new_ms, 0, 0
  rate = tostring(tokens / busy_ms * 1000)
  if busy_ms > WINDOW_MS then tokens, busy_ms = tokens / 2, busy_ms / 2 end
end
if is_backlogged or was_backlogged then last_wait = now end
if not is_backlogged then new_tokens, new_ms = 0, 0 end
if now - last_wait > WINDOW_MS then tokens, busy_ms, rate = 0, 0, '0' end
redis.call('HSET', P .. 'drain', 'since', now, 'last_wait', last_wait, 'is_backlogged', is_backlogged and 1 or 0,
  'new_tokens', new_tokens, 'new_ms', new_ms, 'tokens', tostring(tokens), 'busy_ms', tostring(busy_ms), 'rate', rate)

local ids = {}
for i, job in ipairs(claimed) do ids[i] = job[1] end
redis.call('HSET', me, 'claim_number', a.number, 'claim_ids', table.concat(ids, ' '))
return claimed
