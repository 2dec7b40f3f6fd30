-- Keeps an event, and queues a delivery for each watch that takes its type.
--
-- KEYS: watches of its integration, the event
-- ARGV: integration, event, type, body, the budget in bytes, the cap of a watch, the seconds for
--       which an id is remembered, those for which what is over is kept, the account, the most bytes
--       of the account's events in this shard of which any delivery waits
-- Returns {'new', deliveries}, {'same', 0} for an id that was accepted before, or {'full', 0}.

local integration, event, kind, body = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local budget, cap = tonumber(ARGV[5]), tonumber(ARGV[6])
-- Of its record, beside the body and the deliveries.
local OVERHEAD = 1400
-- The most events and deliveries that one call drops, which takes the server a few milliseconds.
local MOST_DROPPED = 300

-- Some 3.5 MB of each shard, beside the budget.
local MOST_SEEN = 32768

local seen = shard .. 'seen'
local forgotten = now - tonumber(ARGV[7]) * 1000000
if (tonumber(redis.call('ZSCORE', seen, event)) or 0) > forgotten
  or redis.call('EXISTS', KEYS[2]) == 1 then return {'same', 0} end

local watches, health = {}, {}
local found = redis.call('HGETALL', KEYS[1])
for i = 1, #found, 2 do
  local watch, patterns = found[i], patterns_in(found[i + 1])
  if patterns and takes(patterns, kind) then
    health[watch] = health_of(watch)
    if health[watch].status ~= 'disabled' then watches[#watches + 1] = watch end
  end
end

local size = #body + OVERHEAD + EACH * #watches
-- Before anything is dropped for it.
local account = ARGV[9]
local waiting = tonumber(redis.call('ZSCORE', shard .. 'accounts', account)) or 0
if #watches > 0 and waiting + size > tonumber(ARGV[10]) then return {'full', 0} end
local bytes = tonumber(redis.call('GET', shard .. 'bytes')) or 0

-- The oldest that is over goes first, a few in each step; what still waits never goes.
local droppable = MOST_DROPPED
local function make_room(old)
  local its, deliveries = drop(old)
  bytes, droppable = bytes - its, droppable - 1 - deliveries
end
local expired = text(now - tonumber(ARGV[8]) * 1000000)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', shard .. 'finished', '-inf', expired,
    'LIMIT', 0, 20)) do
  if droppable <= 0 then break end
  make_room(old)
end
if bytes + size > budget then
  for _, old in ipairs(redis.call('ZRANGE', shard .. 'finished', 0, 99)) do
    if bytes + size <= budget or droppable <= 0 then break end
    make_room(old)
  end
end
if bytes + size > budget then return {'full', 0} end
redis.call('INCRBY', shard .. 'bytes', size)

local at = text(now)
redis.call('ZADD', seen, at, event)
redis.call('ZREMRANGEBYSCORE', seen, '-inf', text(forgotten))
redis.call('ZREMRANGEBYRANK', seen, 0, -1 - MOST_SEEN)
redis.call('HSET', KEYS[2], 'integration', integration, 'account', account, 'type', kind,
  'body', body, 'at', at, 'size', size, 'left', #watches)
redis.call('ZADD', shard .. 'events:' .. integration, at, event)
if #watches == 0 then redis.call('ZADD', shard .. 'finished', at, event)
else add_pending(account, size) end
for _, watch in ipairs(watches) do
  local id = event .. ':' .. watch .. ':0'
  redis.call('HSET', shard .. 'delivery:' .. id, 'state', 'queued', 'attempts', 0, 'at', at)
  redis.call('SADD', shard .. 'deliveries:' .. event, id)
  redis.call('ZADD', shard .. 'recent:' .. watch, at, id)
  enqueue(id, watch, now, false)
  local earlier = redis.call('ZSCORE', shard .. 'heads', watch)
  set_turn(watch, cap, health[watch], math.min(now, tonumber(earlier) or now))
end
if #watches > 0 then redis.call('PUBLISH', shard .. 'due', #watches) end
return {'new', #watches}
