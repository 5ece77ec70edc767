#!lua flags=allow-oom
-- Say for how long some jobs are known to be wanted.
--
-- KEYS[1] prefix P    ARGV[1] watch_ms   ARGV[2..] job ids
-- P..watchers  zset  job -> until when, ms      P..job:<id>  hash      P..out:<id>  list
--
-- Returns the ids that Redis does not know (any more).

-- include end_job

local P, until_ms, gone = KEYS[1], now_ms() + tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  if redis.call('EXISTS', P .. 'job:' .. ARGV[i]) == 0 then
    gone[#gone + 1] = ARGV[i]
  else
    redis.call('ZADD', P .. 'watchers', 'XX', until_ms, ARGV[i])
    -- A slow reader may still be at it when the job has long ended. (GT leaves a running job without a time to live.)
    redis.call('PEXPIRE', P .. 'job:' .. ARGV[i], ARGV[1], 'GT')
    redis.call('PEXPIRE', P .. 'out:' .. ARGV[i], ARGV[1], 'GT')
  end
end
return gone
