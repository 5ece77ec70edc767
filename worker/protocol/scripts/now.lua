-- Included by scripts that need the time: Redis' own, since clients may have any.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
