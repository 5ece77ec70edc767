#!lua flags=allow-oom
-- Append and publish what one engine step made, for all its jobs at once. Repeating a call is harmless.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker rows {{id, fence, seq, terminal state or ''}, ...}
--                     ARGV[2..] the encoded event of each row
-- P..held:<name>  hash  job -> fence          P..out:<id>  list  replay list
-- P..worker:<name>  hash  on_trial, num_cleared      P..job:<id>  hash  attempts
-- and what ending a job touches: counters, tenants, deadlines, watchers, the channel frames
--
-- Returns {{ids no longer owned}, {ids whose list is shorter than the worker thinks}, {their lengths}}

-- include end_job

local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local me, held = P .. 'worker:' .. a.worker, P .. 'held:' .. a.worker
local lost, short, short_len, rows, lengths = {}, {}, {}, {}, {}
local fences, stale, is_short, has_ended = {}, {}, {}, {}
local trial = on_trial(P, a.worker)

for i, row in ipairs(a.rows) do
  local id, fence, seq, state, entry = row[1], row[2], row[3], row[4], ARGV[i + 1]
  fences[id] = fences[id] or redis.call('HGET', held, id) or 'none'
  if fences[id] ~= tostring(fence) then
    stale[#stale + 1] = id
  elseif not is_short[id] then
    lengths[id] = lengths[id] or redis.call('LLEN', P .. 'out:' .. id)
    if seq > lengths[id] + 1 then
      is_short[id] = true
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
-- A job that came back here meanwhile has rows under two fences: it is not lost.
for _, id in ipairs(stale) do
  if not lengths[id] then lost[#lost + 1], lengths[id] = id, 0 end
end

local still_tried = {}
for _, id in ipairs(trial) do
  if not has_ended[id] then
    if lengths[id] and is_past_its_crash(P, id) then
      redis.call('HSET', P .. 'job:' .. id, 'attempts', 0)
    else
      still_tried[#still_tried + 1] = id
    end
  end
end
if #still_tried < #trial then
  redis.call('HSET', me, 'on_trial', table.concat(still_tried, ' '))
  redis.call('HINCRBY', me, 'num_cleared', #trial - #still_tried)
  ring(P, 0)  -- whatever the next suspects' class is
end
publish(P, rows)
return {lost, short, short_len}
