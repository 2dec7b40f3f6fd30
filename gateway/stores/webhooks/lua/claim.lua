-- Leases deliveries that are due, to one courier.
--
-- KEYS: any name in the shard
-- ARGV: a token of this claim, how many at most, how many of them from watches that are not good, the
--       length of a lease in us, the most of a watch in flight, the most of a watch in one visit, the
--       most bytes of their events
-- Returns the us until something that was asked for is due, or -1; the leases that were lost; for each
-- delivery its id, its watch as JSON, the integration, the body, the attempts so far, when it was
-- accepted, whether its watch is good (1), how often its watch's breaker was opened since its last
-- success, and its account; and what is wrong with watches whose names another program has written.

local token, most, others = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lease, cap, visit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local most_bytes = tonumber(ARGV[7])
local leases = shard .. 'leases'
local claimed, lost, bytes, full, faults = {}, 0, 0, false, {}
-- After so long a watch is visited again whose names cannot be read.
local FAULTY = 10 * 1000000
-- The most deliveries that one call gives up, as they have waited for too long, and cancels, as their
-- watch is disabled.
local expirable = 100

-- What a courier has not finished in time waits again, at once.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', text(now),
    'LIMIT', 0, 100)) do
  local _, watch = of_delivery(id)
  redis.call('ZREM', leases, id)
  if watch and redis.call('EXISTS', shard .. 'delivery:' .. id) == 1 then
    lost = lost + 1
    redis.call('HDEL', shard .. 'delivery:' .. id, 'token')
    redis.call('HSET', shard .. 'delivery:' .. id, 'state', 'queued')
    if redis.call('EXISTS', shard .. 'health:' .. watch) == 1 then
      redis.call('HINCRBY', shard .. 'health:' .. watch, 'held', -1)
    end
    enqueue(id, watch, now, redis.call('HGET', shard .. 'delivery:' .. id, 'replay'))
    set_turn(watch, cap)
  end
end

local function cancel(id, event)
  set_state(id, 'cancelled', DELETED)
  settle(event)
end

local function take_from(queue, watch, number, health)
  local taken, removed = 0, 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', text(now), 'LIMIT', 0, number)) do
    local event = of_delivery(id)
    if not event then
      -- Another program's: no delivery has such a name.
      redis.call('ZREM', queue, id)
      event, id = '', ''
    end
    local its = redis.call('HMGET', shard .. 'event:' .. event, 'integration', 'body', 'account')
    -- One event alone may be longer than that.
    its[2] = its[2] or ''
    full = full or (#claimed > 0 and #its[2] <= MOST_BODY and bytes + #its[2] > most_bytes)
    if full then break end
    removed = removed + redis.call('ZREM', queue, id)
    local made = redis.call('HMGET', shard .. 'delivery:' .. id, 'attempts', 'at')
    if its[1] and made[1] then
      local record = redis.call('HGET', shard .. 'watches:' .. its[1], watch)
      if record and #record > MOST_RECORD then record = '' end
      if record and #its[2] > MOST_BODY then
        set_state(id, 'dead', 'the event is too long: ' .. #its[2] .. ' bytes')
        give_up(id, its[1])
        settle(event)
      elseif record then
        redis.call('HSET', shard .. 'delivery:' .. id, 'state', 'leased', 'token', token)
        redis.call('ZADD', leases, text(now + lease), id)
        redis.call('HINCRBY', shard .. 'health:' .. watch, 'held', 1)
        claimed[#claimed + 1] = {id, record, its[1], its[2], made[1], made[2],
          is_good(health) and 1 or 0, tonumber(health.openings) or 0, its[3] or ''}
        taken, bytes = taken + 1, bytes + #its[2] + #record
      else
        cancel(id, event)
      end
    end
  end
  count('waiting', -removed)
  return taken
end

-- Gives up what a paused watch, or a rate, has held for too long.
local function expire(watch)
  for _, name in ipairs({'queue:', 'replays:'}) do
    local queue = shard .. name .. watch
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', text(now - EXPIRY),
        'LIMIT', 0, expirable)) do
      local event = of_delivery(id)
      redis.call('ZREM', queue, id)
      expirable = expirable - 1
      if event then count('waiting', -1) end
      local integration = event and redis.call('HGET', shard .. 'event:' .. event, 'integration')
      if integration then
        set_state(id, 'dead', 'expired')
        give_up(id, integration)
        settle(event)
      end
    end
  end
end

-- Replayed deliveries are taken only where nothing live is due.
local function take(watch, number, health)
  local live = take_from(shard .. 'queue:' .. watch, watch, number, health)
  if live == number then return live end
  return live + take_from(shard .. 'replays:' .. watch, watch, number - live, health)
end

-- So many attempts of a watch begin now: its rate allows the next one later.
local function begin(watch, health, number)
  local step = step_of(health)
  if step and number > 0 then
    redis.call('HSET', shard .. 'health:' .. watch, 'allowed',
      text(allowed_since(health) + number * step))
  end
end

-- Takes what is due of one watch, whose turn it was; how many.
local function visit_one(watch, left)
  local health = health_of(watch)
  if health.status == 'disabled' then
    expirable = expirable - cancel_waiting(watch, expirable)
  elseif health.status == 'paused' or step_of(health) then expire(watch) end
  local wanted = math.min(left, visit, room(health, cap), allowed_now(health))
  local taken = take(watch, wanted, health)
  begin(watch, health, taken)
  set_turn(watch, cap)
  return taken
end

-- Watches in the order of their turn; each gets a few, and then goes behind the others. An error of one
-- must neither end this call, in which others have leases already, nor leave it without a turn.
local function visit_all(turns, number)
  local left = number
  while left > 0 and not full do
    local due = redis.call('ZRANGEBYSCORE', turns, '-inf', text(now),
      'LIMIT', 0, left)
    if #due == 0 then break end
    local before = left
    for _, watch in ipairs(due) do
      if left == 0 or full then break end
      redis.call('ZREM', turns, watch)
      local before_it = #claimed
      local is_done, error = pcall(visit_one, watch, left)
      if not is_done then
        local why = type(error) == 'table' and error.err or error
        faults[#faults + 1] = string.sub(watch, 1, 64) .. ': ' .. tostring(why)
        redis.call('ZADD', shard .. 'turns:other', text(now + FAULTY), watch)
      end
      left = left - (#claimed - before_it)
    end
    if left == before then break end
  end
  return number - left
end

local taken = visit_all(shard .. 'turns:good', most)
visit_all(shard .. 'turns:other', math.min(most - taken, others))

-- Where no more of the other watches are wanted, their turn is nothing to wait for.
local wait = -1
for _, turns in ipairs(others > 0 and {'turns:good', 'turns:other'} or {'turns:good'}) do
  local first = redis.call('ZRANGE', shard .. turns, 0, 0, 'WITHSCORES')
  if first[2] then
    local its = math.max(0, tonumber(first[2]) - now)
    if wait < 0 or its < wait then wait = its end
  end
end
return {wait, lost, claimed, faults}
