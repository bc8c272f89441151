-- Figures of job queues for redis_exporter (--script). It wants names and values in turn.
-- All queues of the database that it is connected to, 200 at most.
local out = {}

local function add(name, value)
  out[#out + 1] = name
  out[#out + 1] = tostring(value or 0)
end

-- A map comes as names and values in turn.
local function map(reply)
  local fields = {}
  for i = 1, #reply, 2 do
    local name = reply[i]
    if type(name) == 'table' then name = name.ok end
    fields[name] = reply[i + 1]
  end
  return fields
end

for line in redis.call('INFO', 'rq'):gmatch('[^\r\n]+') do
  local name, value = line:match('^rq_([%w_]+):(%d+)$')
  if name then add('info_' .. name, value) end
end

local seen = {}
for _, queue in ipairs(redis.call('RQ.QUEUES', 'COUNT', 200)[2]) do
  -- Names may be any bytes; two that look the same are told apart.
  local name = queue:gsub('[^%w%.:/_-]', '_')
  while seen[name] do name = name .. '_' end
  seen[name] = true
  local stats = map(redis.call('RQ.STATS', queue))
  for _, state in ipairs({'delayed', 'ready', 'active', 'done', 'dead', 'cancelled'}) do
    add(name .. '_' .. state, stats[state])
  end
  add(name .. '_oldest_ready_age_ms', stats['oldest-ready-age'])
  add(name .. '_wait_p99_ms', map(stats['wait-time'])['p99'])
  add(name .. '_run_p99_ms', map(stats['run-time'])['p99'])
  add(name .. '_paused', stats['paused'])
  add(name .. '_live_workers', stats['live-workers'])
  add(name .. '_stale_workers', stats['stale-workers'])
  add(name .. '_waiting_workers', stats['waiting-workers'])
  add(name .. '_bytes', stats['bytes'])
  for event, total in pairs(map(stats['totals'])) do
    add(name .. '_total_' .. event, total)
  end
end
return out
