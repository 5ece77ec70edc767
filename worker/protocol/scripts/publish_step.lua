#!lua flags=allow-oom
-- Append and publish what one engine step made, for all its jobs at once. Repeating a call is harmless.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker rows {{id, fence, seq, terminal state or ''}, ...}
--                     ARGV[2..] the encoded event of each row
-- P..held:<name>  hash  job -> fence          P..out:<id>  list  replay list
-- P..worker:<name>  hash  on_trial, num_cleared      P..job:<id>  hash  suspect_len, sequences
-- and what ending a job touches: counters, tenants, deadlines, watchers, the channel frames
--
-- Returns {{ids no longer owned}, {ids whose list is shorter than the worker thinks}, {their lengths}}

-- include end_job

-- A suspect that got this many tokens a sequence past where its worker died is a suspect no more.
local CLEARED_AFTER = 4
local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local me, held = P .. 'worker:' .. a.worker, P .. 'held:' .. a.worker
local lost, short, short_len, rows, lengths = {}, {}, {}, {}, {}
local is_left_out, has_ended = {}, {}
local trial = on_trial(P, a.worker)

for i, row in ipairs(a.rows) do
  local id, fence, seq, state, entry = row[1], row[2], row[3], row[4], ARGV[i + 1]
  if lengths[id] == nil and not is_left_out[id] then
    if redis.call('HGET', held, id) ~= tostring(fence) then
      is_left_out[id] = true
      lost[#lost + 1] = id
    else
      lengths[id] = redis.call('LLEN', P .. 'out:' .. id)
    end
  end
  if not is_left_out[id] then
    if seq > lengths[id] + 1 then
      is_left_out[id] = true
      short[#short + 1], short_len[#short_len + 1] = id, lengths[id]
    elseif seq == lengths[id] + 1 then
      if state ~= '' then
        rows[#rows + 1] = end_job(P, id, state, entry)
        has_ended[id] = true
      else
        redis.call('RPUSH', P .. 'out:' .. id, entry)
        rows[#rows + 1] = {id, seq, entry}
      end
      lengths[id] = seq
    end
  end
end

local function is_cleared(id)
  if has_ended[id] or not lengths[id] then return has_ended[id] end
  local job = redis.call('HMGET', P .. 'job:' .. id, 'suspect_len', 'sequences')
  return lengths[id] > tonumber(job[1] or 0) + CLEARED_AFTER * tonumber(job[2] or 1)
end

local still_tried = {}
for _, id in ipairs(trial) do
  if not is_cleared(id) then still_tried[#still_tried + 1] = id end
end
if #still_tried < #trial then
  redis.call('HSET', me, 'on_trial', table.concat(still_tried, ' '))
  redis.call('HINCRBY', me, 'num_cleared', #trial - #still_tried)
  ring(P, 0)  -- whatever the next suspects' class is
end
publish(P, rows)
return {lost, short, short_len}
