#!lua flags=allow-oom
-- Append and publish what one engine step made, for all its jobs at once. Repeating a call is harmless.
--
-- KEYS[1] prefix P    ARGV[1] msgpack: worker rows {{id, fence, seq, terminal state or ''}, ...}
--                     ARGV[2..] the encoded event of each row
-- P..held:<name>  hash  job -> fence          P..out:<id>  list  replay list
-- P..worker:<name>  hash  suspect             P..job:<id>  hash  suspect_len, sequences
-- and what ending a job touches: counters, tenants, deadlines, watchers, the channel frames
--
-- Returns {{ids no longer owned}, {ids whose list is shorter than the worker thinks}, {their lengths}}

-- include end_job

-- A suspect that got this many tokens a sequence past where its worker died is a suspect no more.
local CLEARED_AFTER = 4
local P, a = KEYS[1], cmsgpack.unpack(ARGV[1])
local me, held = P .. 'worker:' .. a.worker, P .. 'held:' .. a.worker
local lost, short, short_len, rows, lengths = {}, {}, {}, {}, {}
local is_left_out = {}

local suspect = redis.call('HGET', me, 'suspect')

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
      else
        redis.call('RPUSH', P .. 'out:' .. id, entry)
        rows[#rows + 1] = {id, seq, entry}
      end
      lengths[id] = seq
    end
  end
end

if suspect and lengths[suspect] then
  local job = redis.call('HMGET', P .. 'job:' .. suspect, 'suspect_len', 'sequences')
  if lengths[suspect] > tonumber(job[1] or 0) + CLEARED_AFTER * tonumber(job[2] or 1) then
    redis.call('HDEL', me, 'suspect')
    ring(P, 0)  -- whatever the next suspect's class is
  end
end
publish(P, rows)
return {lost, short, short_len}
