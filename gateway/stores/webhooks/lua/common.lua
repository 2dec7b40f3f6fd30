-- Shared by all scripts of deliveries: they are one text with it. KEYS[1] is a name in the shard.
--
-- Times are microseconds of the server. A delivery is named EVENT:WATCH:NUMBER.

local shard = string.match(KEYS[1], '^gw:{[^}]*}:')
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

-- The bytes of a delivery for the budget, as they were measured: its names in sets are most of them.
local EACH = 750

-- The events in a list: a longer reply ends the connection.
local MOST_REPLY = 4 * 1024 * 1024
-- One event alone may be longer than that, up to this: with a longer one the reply would be refused,
-- and its connection ended. No longer one is returned.
local MOST_BODY = 14 * 1024 * 1024
-- Of a watch's record, and of the attempts of a delivery: what is longer was written by others.
local MOST_RECORD, MOST_LOG = 128 * 1024, 64 * 1024

-- How often an event is delivered again, to all watches: what looks at all its deliveries is quick.
local MOST_AGAIN = 200
-- What waits at a paused watch, or for a watch's rate, for so long is given up, as what is tried:
-- `domain.webhooks.schedule`.
local EXPIRY = 4 * 24 * 3600 * 1000000

-- The attempts of a watch with a rate begin a step apart: in a period and SLACK there are as many steps
-- as the rate allows attempts in a period. One that begins late, by up to SLACK, delays none after it;
-- even so no more begin in any period than the rate allows.
local SLACK = 20000
-- Attempts that are less than this apart begin together.
local TOGETHER = 10000

-- Why a watch is paused whose account is suspended: what arrives waits, as if its owner had paused it.
local SUSPENDED = 'its account is suspended'

-- Why a delivery was cancelled.
local DELETED = 'removed'

local function text(number)
  return string.format('%.0f', number)
end

local function of_delivery(id)
  return string.match(id, '^([^:]+):([^:]+):')
end

local function health_of(watch)
  local health = {}
  local found = redis.call('HGETALL', shard .. 'health:' .. watch)
  for i = 1, #found, 2 do health[found[i]] = found[i + 1] end
  return health
end

-- A watch is good while its last attempt succeeded, and its answers are quick on average.
local function is_good(health)
  return health.proven == '1' and (tonumber(health.failures) or 0) == 0
    and (tonumber(health.ms) or 0) <= 2000
end

-- How many deliveries of a watch may begin now; with an open breaker one, once its probe is due.
local function room(health, cap)
  if health.status then return 0 end
  local held = tonumber(health.held) or 0
  local open = tonumber(health.open)
  if open then return (held == 0 and open <= now) and 1 or 0 end
  return math.max(0, math.min(cap, tonumber(health.ramp) or cap) - held)
end

-- The us between the attempts of a watch with a rate; nothing: it has no rate.
local function step_of(health)
  local step = tonumber(health.step)
  return step and step >= 1 and step or nil
end

-- Since when its rate allows another attempt.
local function allowed_since(health)
  return math.max(tonumber(health.allowed) or 0, now - SLACK)
end

-- How many attempts the rate of a watch allows now.
local function allowed_now(health)
  local step = step_of(health)
  return step and math.max(0, math.floor((now - allowed_since(health)) / step) + 1) or math.huge
end

-- When the watch is to be looked at for the next ones.
local function allowed_next(health)
  local step = step_of(health)
  return step and (tonumber(health.allowed) or 0) + math.floor(TOGETHER / step) * step or 0
end

-- `waiting` and `dead` have no set of their own that could be counted.
local function count(name, by)
  if by ~= 0 then redis.call('HINCRBY', shard .. 'counts', name, by) end
end

local function enqueue(id, watch, at, is_replay)
  local queue = shard .. (is_replay and 'replays:' or 'queue:') .. watch
  count('waiting', redis.call('ZADD', queue, text(at), id))
end

-- When the first delivery of a watch is due, live or replayed.
local function first_due(watch)
  local live = redis.call('ZRANGE', shard .. 'queue:' .. watch, 0, 0, 'WITHSCORES')
  local replay = redis.call('ZRANGE', shard .. 'replays:' .. watch, 0, 0, 'WITHSCORES')
  if live[2] and replay[2] then return math.min(tonumber(live[2]), tonumber(replay[2])) end
  return tonumber(live[2] or replay[2])
end

-- When a watch is looked at next: when its first delivery is due, but never before its breaker lets
-- a probe through, or its rate an attempt. Not at all if nothing waits, or if it has no room: what
-- finishes calls this again. One that is paused: when its first delivery expires. One that is
-- disabled: now, as claims cancel what was left there by a courier that died.
--
-- health: as it is now, if the caller knows; first: when that delivery is due, or later, if it knows
local function set_turn(watch, cap, health, first)
  local good, other, heads = shard .. 'turns:good', shard .. 'turns:other', shard .. 'heads'
  health = health or health_of(watch)
  local status, open = health.status, tonumber(health.open)
  if status then first, open = nil, nil end
  first = first or first_due(watch)
  if first and status then first = status == 'paused' and first + EXPIRY or now end
  if not first or (not status and room(health, cap) == 0
      and not (open and (tonumber(health.held) or 0) == 0)) then
    -- One without a head has no turn either.
    if redis.call('ZREM', heads, watch) == 1 then
      redis.call('ZREM', good, watch)
      redis.call('ZREM', other, watch)
    end
    return
  end
  local at = status and first or math.max(first, open or 0, allowed_next(health))
  local into, from = good, other
  if not is_good(health) then into, from = other, good end
  if redis.call('ZADD', heads, text(at), watch) == 0 then redis.call('ZREM', from, watch) end
  if at > now then
    redis.call('ZADD', into, text(at), watch)
  else
    -- One that is due now goes behind all others that are. But the turn that it waits for stays: one
    -- that gets events all the time would never have any.
    redis.call('ZADD', into, 'LT', text(now), watch)
  end
end

-- Counts bytes of an account's events of which any delivery is left, with all their deliveries. One
-- of them must not take the room of all: a watch may be paused, or fail for days.
--
-- account: nothing: of an event of an older gateway
local function add_pending(account, by)
  if not account then return end
  local accounts = shard .. 'accounts'
  if tonumber(redis.call('ZINCRBY', accounts, by, account)) <= 0 then
    redis.call('ZREM', accounts, account)
  end
end

-- The account of an event, and its bytes.
local function share_of(event)
  local its = redis.call('HMGET', shard .. 'event:' .. event, 'account', 'size')
  return its[1], tonumber(its[2]) or 0
end

-- An event has one more delivery that is not over.
local function add_left(event)
  if redis.call('HINCRBY', shard .. 'event:' .. event, 'left', 1) == 1 then
    add_pending(share_of(event))
  end
end

-- One delivery of an event is over. Events without any left may be dropped when room is needed.
local function settle(event)
  if redis.call('HINCRBY', shard .. 'event:' .. event, 'left', -1) == 0 then
    redis.call('ZADD', shard .. 'finished', text(now), event)
    local account, size = share_of(event)
    add_pending(account, -size)
  end
end

-- Was the event of a delivery sent to its watch again since that was made?
local function is_sent_again(id)
  local event, watch = of_delivery(id)
  local number = tonumber(string.match(id, ':(%d+)$')) or 0
  local resent = tonumber(redis.call('HGET', shard .. 'event:' .. event, 'resent')) or 0
  -- To any watch.
  if resent <= number then return false end
  for _, other in ipairs(redis.call('SMEMBERS', shard .. 'deliveries:' .. event)) do
    local _, its = of_delivery(other)
    if its == watch and (tonumber(string.match(other, ':(%d+)$')) or 0) > number then
      return true
    end
  end
  return false
end

-- A delivery is given up. It is a dead letter, unless its event was sent to the watch again.
local function give_up(id, integration)
  if is_sent_again(id) then return end
  count('dead', redis.call('ZADD', shard .. 'dead:' .. integration, text(now), id))
end

-- Counts more bytes of an event, of which a delivery is left, in the budget.
local function grow(event, by)
  local name = shard .. 'event:' .. event
  redis.call('HINCRBY', name, 'size', by)
  redis.call('INCRBY', shard .. 'bytes', by)
  add_pending(redis.call('HGET', name, 'account'), by)
end

-- Forgets an event and its deliveries. Returns its bytes, and how many deliveries it had.
local function drop(event)
  local its = redis.call('HMGET', shard .. 'event:' .. event, 'integration', 'size')
  local integration, size = its[1] or '', tonumber(its[2]) or 0
  local deliveries = redis.call('SMEMBERS', shard .. 'deliveries:' .. event)
  for _, id in ipairs(deliveries) do
    local _, watch = of_delivery(id)
    redis.call('UNLINK', shard .. 'delivery:' .. id)
    count('dead', -redis.call('ZREM', shard .. 'dead:' .. integration, id))
    if watch then redis.call('ZREM', shard .. 'recent:' .. watch, id) end
  end
  redis.call('UNLINK', shard .. 'event:' .. event, shard .. 'deliveries:' .. event)
  redis.call('ZREM', shard .. 'finished', event)
  redis.call('ZREM', shard .. 'events:' .. integration, event)
  redis.call('DECRBY', shard .. 'bytes', size)
  return size, #deliveries
end

local function takes(patterns, kind)
  for _, pattern in ipairs(patterns) do
    if pattern == kind then return true end
    if string.sub(pattern, -2) == '.*'
      and string.sub(kind, 1, #pattern - 1) == string.sub(pattern, 1, -2) then return true end
  end
  return false
end

-- Has an event a type that this pattern takes? '': any. Its body is not read.
local function is_of_type(event, pattern)
  if pattern == '' then return true end
  local kind = redis.call('HGET', shard .. 'event:' .. event, 'type')
  return kind and takes({pattern}, kind)
end

-- The patterns of a watch; nothing: it cannot be read.
local function patterns_in(record)
  local read, its = pcall(cjson.decode, record)
  if read and type(its) == 'table' and type(its.events) == 'table' then return its.events end
end

-- The same of a watch that gets events; nothing also for one that is disabled.
local function patterns_of(watch, record)
  local patterns = patterns_in(record)
  if patterns and redis.call('HGET', shard .. 'health:' .. watch, 'status') ~= 'disabled' then
    return patterns
  end
end

-- Has an event been delivered again as often as it may be?
local function has_many(event)
  return (tonumber(redis.call('HGET', shard .. 'event:' .. event, 'resent')) or 0) >= MOST_AGAIN
end

-- Is there room for one more delivery of an event?
--
-- share: the most bytes of its account's events of which any delivery is left
local function has_room_again(event, budget, share)
  if (tonumber(redis.call('GET', shard .. 'bytes')) or 0) + EACH > budget then return false end
  local account, size = share_of(event)
  if not account then return true end
  local left = tonumber(redis.call('HGET', shard .. 'event:' .. event, 'left')) or 0
  local more = left > 0 and EACH or size + EACH
  return (tonumber(redis.call('ZSCORE', shard .. 'accounts', account)) or 0) + more <= share
end

-- Queues a delivery of an event once more. What was given up of it is no dead letter any more.
local function deliver_again(integration, event, watch, at, is_replay)
  local name = shard .. 'event:' .. event
  for _, old in ipairs(redis.call('SMEMBERS', shard .. 'deliveries:' .. event)) do
    local _, its = of_delivery(old)
    if its == watch then
      count('dead', -redis.call('ZREM', shard .. 'dead:' .. integration, old))
    end
  end
  local id = event .. ':' .. watch .. ':' .. redis.call('HINCRBY', name, 'resent', 1)
  redis.call('HSET', shard .. 'delivery:' .. id, 'state', 'queued', 'attempts', 0, 'at', text(at))
  if is_replay then redis.call('HSET', shard .. 'delivery:' .. id, 'replay', 1) end
  redis.call('SADD', shard .. 'deliveries:' .. event, id)
  redis.call('ZADD', shard .. 'recent:' .. watch, text(at), id)
  enqueue(id, watch, at, is_replay)
  add_left(event)
  grow(event, EACH)
  redis.call('ZREM', shard .. 'finished', event)
  return id
end

local function set_state(id, state, reason)
  redis.call('HSET', shard .. 'delivery:' .. id, 'state', state, 'reason', reason,
    'ended', text(now))
end

-- Cancels what waits for a watch that is disabled, so many deliveries at most. Returns how many.
local function cancel_waiting(watch, most)
  local left = most
  for _, name in ipairs({'queue:', 'replays:'}) do
    local queue = shard .. name .. watch
    local ids = left > 0 and redis.call('ZRANGE', queue, 0, left - 1) or {}
    for _, id in ipairs(ids) do
      count('waiting', -redis.call('ZREM', queue, id))
      set_state(id, 'cancelled', 'disabled')
      local event = of_delivery(id)
      if event then settle(event) end
    end
    left = left - #ids
  end
  return most - left
end

-- An event as it is returned: id, integration, type, body ('' if it is too long), when it was accepted,
-- deliveries that are not over. Nothing if it is not kept.
local function event_shown(event)
  local its = redis.call('HMGET', shard .. 'event:' .. event, 'integration', 'type', 'body', 'at',
    'left')
  if not its[3] then return nil end
  if #its[3] > MOST_BODY then its[3] = '' end
  return {event, its[1] or '', its[2] or '', its[3], its[4] or '0', its[5] or '0'}
end

-- A delivery as it is returned: id, state, reason, when it was made, when it ended, its attempts.
-- Nothing if it is not kept.
local function delivery_shown(id)
  local its = redis.call('HMGET', shard .. 'delivery:' .. id, 'state', 'reason', 'at', 'ended',
    'log')
  if not its[1] then return nil end
  local log = its[5] or ''
  return {id, its[1], its[2] or '', its[3] or '0', its[4] or '0', #log <= MOST_LOG and log or ''}
end

-- A page of a list by time, the newest first: {where to go on or '0', entries}. It looks at `number`
-- entries, has `most` at most, and is shorter where they are long; entries of one moment are on one
-- page, if others are there as well.
--
-- from, to: of their times, as bounds of a range; show: an entry and its bytes; nothing: it is left out
local function page_of(list, from, to, number, most, show)
  local looked = redis.call('ZREVRANGEBYSCORE', list, to, from, 'WITHSCORES', 'LIMIT', 0, number + 1)
  local found, scores, bytes, last = {}, {}, 0, 0
  for i = 1, math.min(#looked, 2 * number), 2 do
    local one, its = show(looked[i])
    -- One alone may be longer than that.
    if one and #found > 0 and bytes + its > MOST_REPLY then break end
    last = i
    if one then
      found[#found + 1], scores[#found + 1], bytes = one, looked[i + 1], bytes + its
    end
    if #found >= most then break end
  end
  if last + 2 > #looked then return {'0', found} end
  if looked[last + 3] ~= looked[last + 1] then return {looked[last + 1], found} end
  local before = last
  while before > 0 and looked[before + 1] == looked[last + 1] do before = before - 2 end
  if before < 1 then return {looked[last + 1], found} end
  while #found > 0 and scores[#found] == looked[last + 1] do found[#found] = nil end
  return {looked[before + 1], found}
end
