-- Decides a batch of checks in one atomic step. The arithmetic is that of domain/window.py, which
-- explains it; this form of it takes a few microseconds for a decision.
--
-- KEYS    the names of the counters, check by check, limit by limit
-- ARGV[1] the time to decide at, in microseconds; 0: now, by the server's clock
-- ARGV[2] the checks, packed little-endian (see stores/limits/script.py, which packs and unpacks):
--         cost f64 (negative: decided, but not counted), limits u8, plus 128 where the number of
--         the request's lease follows, f64 (negative: after it follow the tags of its connection
--         and of its worker, f64), plus 64 where the cost in each limit follows, u32, in place of
--         the first; for each limit: kind u8 (0 rate, 1 rate with burst, 2 quota, 3 concurrency,
--         4 quota with a calendar, 5 connections), shadow u8, amount f64, peak f64, width
--         f64 (slot, the quota's period, or how long a lease is held), unit f64, slot f64; kind 4
--         has four times for peak to slot: the bounds of the current period by the sender's clock,
--         and of those before and after it
-- Returns now i64 and the number of foreign values found i64; for each check: allowed u8,
--         governing u8, refusing u32, retry i64 (-1: none), and for each of its limits
--         remaining i64, reset i64.
--
-- A counter is read once and written once per batch, however many checks share it; in between it is
-- a table in `counts`. Stored for a rate: until when it is kept at least, slot, the newest counted
-- slot, total, full_at as f64, then the units of each slot as u32, newest first. With a bucket, the
-- place of the newest counted slot has -(64 T + its age in slots), where T is the unit that full_at
-- was computed with; an older version then takes `slot` for the newest one. For a quota: period
-- (its number, or with a calendar its end) and units; for a concurrency limit a sorted set: the
-- leases' numbers, scored by their expiry, so that a lease can be renewed or released without this
-- script (see stores/limits/leases.py); for a limit of connections the same with "TAG:WORKER", the
-- tags of connection and worker, where the request has no connection its number and 0. A value of another format or type is foreign: it counts as
-- empty, is reported, and is overwritten when the counter is next written. A value of the right
-- format may hold any number: no command here may fail on it, as that would fail the whole batch.
--
-- Most checks have one limit, which is a rate: they are decided in the loop at the end, without a
-- call. The functions for all others are created when first needed, as creating them costs more
-- than a decision. So a rate is decided in two places, the loop and the functions of `rarely`:
-- change both; tests/suites/limiter.py checks that both give the same answers.

local call, pcall_, sub, rep = redis.call, redis.pcall, string.sub, string.rep
local pack, unpack_ = struct.pack, struct.unpack

local BUCKET, QUOTA = 1, 2
local RATE_TAG = 30567 -- "gw", little-endian
local RATE, RATE_HEAD, RATE_MOST = '<I2dddddI4', 46, 286
local HEAD_SIZE, LIMIT, LIMIT_SIZE = 9, '<BBddddd', 42
local MOST, MOST_BUCKET = 4294967295, 4503599627370496 -- as in domain/limits.py
local MOST_UNIT = 140737488355328 -- 64 of it are what a double holds exactly
local SIMULATED_TTL_MS = 86400000
-- A rate is kept for this many slots longer than needed, so that few writes have to set its expiry.
local KEPT_SLOTS = 20

local keys, checks = KEYS, ARGV[2]
local now = tonumber(ARGV[1])
local simulated = now > 0
if not simulated then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local counts, reply, foreign = {}, {0}, 0
local of_another_type

-- Reads at most one byte more than the longest value that the gateway writes.
local function stored(name)
  local value = pcall_('GETRANGE', name, '0', '286')
  if type(value) ~= 'string' then
    foreign = foreign + 1 -- an error: a hash, a list
    of_another_type = of_another_type or {}
    of_another_type[name] = true
  elseif value ~= '' then
    return value
  end
end

-- `head` is the units of the current slot, `tail` the packed units of the slots before it; nil: those
-- of `value`, as it was read.
local function read_window(name, limit)
  local slot = now / limit.width
  slot = slot - slot % 1
  -- All fields are set here, also those needed later: a table that has to grow costs 2 % of a check.
  local count = {
    slot = slot, newest = slot, total = 0, full_at = 0, head = 0, limit = limit,
    unit = false, kept_until = false, value = false, dirty = false,
  }
  local value = stored(name)
  if not value then return count end
  local size = #value
  if size < RATE_HEAD or size > RATE_MOST or size % 4 ~= 2 or sub(value, 1, 2) ~= 'gw' then
    foreign = foreign + 1
    return count
  end
  local _, kept_until, was, newest, total, full_at, head, at = unpack_(RATE, value)
  local passed = slot - was
  -- A comparison with NaN is false.
  if not (total >= 0 and total <= MOST) or passed % 1 ~= 0 then
    foreign = foreign + 1
    return count
  end
  if newest < 0 then
    local age = -newest % 64
    local unit = (-newest - age) / 64
    newest = was - age
    if unit >= 1 and unit <= MOST_UNIT then count.unit = unit end
  end
  if not (newest <= was and newest >= was - 60) then newest = was end
  if not (full_at <= now + MOST_BUCKET) then full_at = 0 end
  count.full_at, count.kept_until = full_at, kept_until
  if passed == 0 then
    count.newest, count.total, count.head, count.value = newest, total, head, value
    return count
  end
  count.size, count.tail = size, ''
  if passed > 0 and passed <= 60 then
    local keep = at + (60 - passed) * 4 -- the slots from here on have left the window
    for gone = keep, size, 4 do
      total = total - unpack_('<I4', value, gone)
    end
    count.newest, count.total = math.max(newest, slot - 60), math.max(total, 0)
    count.tail = rep('\0', (passed - 1) * 4) .. sub(value, RATE_HEAD - 3, keep - 1)
  elseif passed < 0 then -- the clock stepped back: what is ahead of now is counted as now
    local from = math.min(at - passed * 4, size + 1)
    for ahead = at, from - 1, 4 do
      head = head + unpack_('<I4', value, ahead)
    end
    count.total, count.head, count.tail, count.dirty = total, head, sub(value, from), true
    count.newest = head > 0 and slot or math.min(newest, slot)
  end
  return count
end

local function tail_of(count)
  local tail = count.tail
  if not tail then
    tail = count.value and sub(count.value, RATE_HEAD + 1) or ''
    count.tail = tail
  end
  return tail
end

-- The time until slots with at least `excess` units have left the window; until all have, where they
-- hold less.
local function excess_leaves_in(count, width, excess)
  if count.excess ~= excess then
    local tail = tail_of(count)
    local ages = #tail / 4
    local older = count.older or {unpack_('<' .. rep('I4', ages), tail)}
    local age, left = ages + 1, excess
    while left > 0 and age > 0 do
      age = age - 1
      left = left - (age == 0 and count.head or older[age])
    end
    count.older, count.excess, count.leaves_at = older, excess, (count.slot - age + 61) * width
  end
  return count.leaves_at - now
end

local function time_to_live_ms(ends, limit)
  local ttl_ms = math.max(1000, math.ceil((ends - now + limit.slot) / 1000))
  return simulated and math.max(ttl_ms, SIMULATED_TTL_MS) or ttl_ms
end

local function write_window(name, count)
  local limit, kept_until, newest = count.limit, count.kept_until, count.newest
  local ends = (newest + 61) * limit.width
  if count.full_at > ends then ends = count.full_at end
  local is_kept = kept_until and kept_until >= ends
  if not is_kept then kept_until = ends + KEPT_SLOTS * limit.width end
  if count.unit then newest = newest - count.slot - 64 * count.unit end
  local value =
    pack(RATE, RATE_TAG, kept_until, count.slot, newest, count.total, count.full_at, count.head)
  if not is_kept then
    call('SET', name, value .. tail_of(count), 'PX', time_to_live_ms(kept_until, limit))
    return
  end
  if count.size then -- the slots have moved
    value = value .. count.tail
    if #value < count.size then value = value .. rep('\0', count.size - #value) end
  end
  call('SETRANGE', name, '0', value)
end

-- Decides checks other than those of one rate. Returns three functions: one decides the check at
-- `at`, whose first counter is the one after `key`, and returns where the next check is; the second
-- writes its counters; the third is `fit_bucket`.
local function rarely()
  local floor, ceil, max, min, format = math.floor, math.ceil, math.max, math.min, string.format
  local LEASES, DATED, LEASED, COSTS, LEASE_RETRY = 3, 4, 128, 64, 1000000
  local BEHIND = 2 ^ 40 -- added to what remains of concurrency limits: they govern only if alone
  local QUOTA_TAG, PERIOD, PERIOD_SIZE = 29031, '<I2dd', 18 -- "gq", little-endian
  local PERIOD_MARGIN = {slot = 3600000000} -- kept for an hour after its end
  local MOST_COUNTED = 9007199254740992 -- what a double holds exactly
  local CONNECTIONS = 5
  -- The most leases that one write removes or moves, as it blocks Redis; and the most that are read
  -- to count connections: beyond it each counts as a connection.
  local MOST_MOVED, MOST_READ = 1000, 4000
  local limits, forms, row, found, asked = {}, {}, {}, {}, {}

  -- The current period as it is stored, the least value that is stored of a period which has not
  -- ended, and when the period ends.
  local function period_of(limit)
    if limit.kind == QUOTA then
      local index = floor(now / limit.width)
      return index, index, (index + 1) * limit.width
    end
    local ends = limit.slot
    if now < limit.width then ends = limit.width elseif now < limit.unit then ends = limit.unit end
    return ends, now + 1, ends
  end

  local function read_period(name, limit)
    local index, first, ends = period_of(limit)
    local value = stored(name)
    local count = {index = index, count = 0, limit = limit, ends = ends}
    if value then
      local was, counted = -1, -1
      if #value == PERIOD_SIZE and sub(value, 1, 2) == 'gq' then
        was, counted = select(2, unpack_(PERIOD, value))
      end
      if not (counted >= 0 and counted <= MOST_COUNTED) then
        foreign = foreign + 1
      elseif was >= first then
        count.count, count.dirty = counted, was ~= index
      end
    end
    return count
  end

  -- `latest` is when the last lease expires, `taken` the leases that this batch adds.
  local function read_leases(name, limit)
    local count = {held = 0, latest = 0, taken = {}, limit = limit}
    local last = pcall_('ZREVRANGE', name, 0, 0, 'WITHSCORES')
    if last.err then
      foreign, count.foreign = foreign + 1, true
    elseif last[2] then
      local latest = tonumber(last[2])
      count.found = true
      if latest > now then
        count.held = call('ZCOUNT', name, format('(%.0f', now), '+inf')
        count.latest = min(latest, now + limit.width)
        count.ahead = latest > now + limit.width -- the clock stepped back
        count.dirty = count.ahead
      end
    end
    return count
  end

  -- `tags` has those of the connections that hold a lease.
  local function read_connections(name, limit)
    local count = read_leases(name, limit)
    local leases, held, tags = count.held, 0, {}
    if leases > 0 then
      for _, member in ipairs(call('ZREVRANGEBYSCORE', name, '+inf', format('(%.0f', now), 'LIMIT',
      0, MOST_READ)) do
        local colon = string.find(member, ':', 1, true)
        local tag = colon and sub(member, 1, colon - 1) or member
        if not tags[tag] then held, tags[tag] = held + 1, true end
      end
    end
    count.tags, count.held = tags, leases > MOST_READ and leases or held
    return count
  end

  local function read_count(name, limit)
    if limit.kind < QUOTA then return read_window(name, limit) end
    if limit.kind == CONNECTIONS then return read_connections(name, limit) end
    return (limit.kind == LEASES and read_leases or read_period)(name, limit)
  end

  -- ceil(ahead * unit / was), exactly, though the product may be longer than a double's 53 bits.
  local function rescaled(ahead, unit, was)
    local whole = floor(ahead / was)
    local rest = ahead - whole * was
    if rest < 0 then whole, rest = whole - 1, rest + was end
    local quotient, over = 0, 0
    for bit = 47, 0, -1 do
      quotient, over = quotient * 2, over * 2
      if floor(unit / 2 ^ bit) % 2 == 1 then over = over + rest end
      while over >= was do
        quotient, over = quotient + 1, over - was
      end
    end
    return whole * unit + quotient + (over > 0 and 1 or 0)
  end

  -- Sets the bucket's time by the limit's unit and peak.
  local function fit_bucket(count, limit)
    local unit, was, latest = limit.unit, count.unit, now + limit.peak * limit.unit
    if was and was ~= unit then -- the units stay; stored with the next admission
      count.full_at = now + rescaled(max(0, count.full_at - now), unit, was)
    end
    if count.full_at > latest then
      -- The clock stepped back, or a change of policy made the bucket smaller.
      count.full_at, count.dirty = latest, true
    end
    count.unit = unit
  end

  -- The time until the cost would be admitted: 0 is at once, -1 never.
  local function wait_for(count, limit, cost, tag)
    if limit.kind >= QUOTA then
      if limit.leased then
        if tag and count.tags and count.tags[tag] then return 0 end
        return count.held + min(cost, 1) <= limit.amount and 0 or LEASE_RETRY
      end
      if count.count + cost <= limit.amount then return 0 end
      return cost <= limit.amount and max(count.ends - now, 1) or -1
    end
    local peak = limit.peak
    if limit.kind == BUCKET then fit_bucket(count, limit) end
    if cost > peak then return -1 end
    local wait, excess = 0, count.total + cost - peak
    if excess > 0 then wait = excess_leaves_in(count, limit.width, excess) end
    if limit.kind == BUCKET then
      wait = max(wait, max(0, count.full_at - now) - (peak - cost) * limit.unit)
    end
    return wait
  end

  local function add(count, limit, cost, lease, tag, worker)
    if limit.leased then
      if lease then
        count.latest, count.dirty = now + limit.width, true
        count.taken[#count.taken + 1] = limit.kind == LEASES and lease or tag .. ':' .. worker
        if not (count.tags and count.tags[tag]) then count.held = count.held + 1 end
        if count.tags then count.tags[tag] = true end
      end
      return
    end
    count.dirty = true
    if limit.kind >= QUOTA then
      count.count = count.count + cost
      return
    end
    local added = min(cost, MOST - count.total)
    count.total, count.head = count.total + added, count.head + added
    if count.head > 0 then count.newest = count.slot end
    if limit.kind == BUCKET then
      local most = limit.peak * limit.unit
      count.full_at = now + min(max(0, count.full_at - now) + cost * limit.unit, most)
    else
      count.full_at, count.unit = 0, false
    end
  end

  local function values(count, limit)
    if limit.kind >= QUOTA then
      if limit.leased then
        return max(0, limit.amount - count.held), max(0, count.latest - now)
      end
      return max(0, limit.amount - count.count), max(count.ends - now, 1)
    end
    local left, reset = limit.peak - count.total, 0
    if count.total > 0 then reset = (count.newest + 61) * limit.width - now end
    if limit.kind == BUCKET then
      local ahead = max(0, count.full_at - now)
      left, reset = min(left, limit.peak - ceil(ahead / limit.unit)), max(reset, ahead)
    end
    return max(0, left - (limit.peak - limit.amount)), reset
  end

  local function write_leases(name, count)
    local limit = count.limit
    local latest = format('%.0f', now + limit.width)
    if count.foreign then call('UNLINK', name) end
    if count.found then
      local lapsed = call('ZCOUNT', name, '-inf', format('%.0f', now))
      if lapsed > 0 then call('ZREMRANGEBYRANK', name, 0, min(lapsed, MOST_MOVED) - 1) end
    end
    if count.ahead then
      for _, number in ipairs(call('ZRANGEBYSCORE', name, '(' .. latest, '+inf', 'LIMIT', 0,
      MOST_MOVED)) do
        call('ZADD', name, latest, number)
      end
    end
    for _, member in ipairs(count.taken) do
      call('ZADD', name, latest, member)
    end
    call('PEXPIRE', name, time_to_live_ms(count.latest, limit))
  end

  local function write(name, count)
    local limit = count.limit
    if limit.leased then return write_leases(name, count) end
    local value = pack(PERIOD, QUOTA_TAG, count.index, count.count)
    local margin = limit.kind == DATED and PERIOD_MARGIN or limit
    call('SET', name, value, 'PX', time_to_live_ms(count.ends, margin))
  end

  local function decide(at, key)
    local cost, n, next_at = unpack_('<dB', checks, at)
    local lease, tag, worker, costs
    if n >= LEASED then
      lease, next_at = unpack_('<d', checks, next_at)
      n, tag, worker = n - LEASED, lease, 0
      if lease < 0 then
        lease = -lease
        tag, worker, next_at = unpack_('<dd', checks, next_at)
      end
      lease, tag, worker = format('%.0f', lease), format('%.0f', tag), format('%.0f', worker)
    end
    if n >= COSTS then
      n = n - COSTS
      costs = {unpack_('<' .. rep('I4', n), checks, next_at)}
      next_at = costs[n + 1]
    end
    at = next_at
    local counted = cost > 0
    cost = math.abs(cost)
    local refusing, governing, retry = 0, nil, 0
    for k = 1, n do
      local text = sub(checks, at, at + LIMIT_SIZE - 1)
      at = at + LIMIT_SIZE
      local limit = limits[text]
      if not limit then
        limit = {}
        limit.kind, limit.shadow, limit.amount, limit.peak, limit.width, limit.unit, limit.slot =
          unpack_(LIMIT, text)
        limit.leased = limit.kind == LEASES or limit.kind == CONNECTIONS
        limits[text] = limit
      end
      local name = keys[key + k]
      local count = counts[name]
      if not count then
        count = read_count(name, limit)
        counts[name] = count
      end
      found[k], asked[k] = count, limit
      local wait = wait_for(count, limit, costs and costs[k] or cost, tag)
      -- A limit in which the request counts nothing does not refuse it.
      if costs and costs[k] == 0 then wait = 0 end
      if wait ~= 0 then
        refusing = refusing + 2 ^ (k - 1)
        if limit.shadow == 0 and (not governing or (retry >= 0 and (wait < 0 or wait > retry))) then
          governing, retry = k, wait
        end
      end
      row[3 + 2 * k] = wait -- replaced by the limit's values below
    end
    local allowed, least = not governing, nil
    for k = 1, n do
      local count, limit = found[k], asked[k]
      local units = costs and costs[k] or cost
      if allowed and counted and units > 0 then add(count, limit, units, lease, tag, worker) end
      local left, reset = values(count, limit)
      if row[3 + 2 * k] ~= 0 then left = 0 end
      row[3 + 2 * k], row[4 + 2 * k] = left, reset
      if limit.leased then left = left + BEHIND end
      if allowed and limit.shadow == 0 and (not least or left < least) then
        governing, least = k, left
      end
    end
    row[1], row[2], row[3] = allowed and 1 or 0, (governing or 1) - 1, refusing
    row[4] = allowed and -1 or retry
    local form = forms[n]
    if not form then
      form = '<BBI4i8' .. rep('i8i8', n)
      forms[n] = form
    end
    reply[#reply + 1] = pack(form, unpack(row, 1, 4 + 2 * n))
    return at, key + n
  end

  return decide, write, fit_bucket
end

local decide_rarely, write_rarely, fit_bucket
local at, key, asked = 1, 0, {}

while at <= #checks do
  -- Most checks of a batch have the same values, which are unpacked once.
  local text = sub(checks, at, at + HEAD_SIZE + LIMIT_SIZE - 1)
  local limit = asked[text]
  if not limit then
    limit = {}
    local n
    limit.cost, n = unpack_('<dB', text)
    if n == 1 then
      limit.kind, limit.shadow, limit.amount, limit.peak, limit.width, limit.unit, limit.slot =
        unpack_(LIMIT, text, HEAD_SIZE + 1)
      limit.is_rate = limit.kind < QUOTA
      limit.has_burst = limit.kind == BUCKET
    end
    asked[text] = limit
  end
  if not limit.is_rate then
    if not decide_rarely then decide_rarely, write_rarely, fit_bucket = rarely() end
    at, key = decide_rarely(at, key)
  else
    at, key = at + HEAD_SIZE + LIMIT_SIZE, key + 1
    local name = keys[key]
    local count = counts[name]
    if not count then
      count = read_window(name, limit)
      counts[name] = count
    end
    local cost, peak, total, ahead, unit = limit.cost, limit.peak, count.total, 0, limit.unit
    local counted = cost > 0
    if cost < 0 then cost = -cost end
    local has_burst = limit.has_burst
    if has_burst then
      if not count.unit then count.unit = unit end
      if count.unit ~= unit or count.full_at > now + peak * unit then
        if not decide_rarely then decide_rarely, write_rarely, fit_bucket = rarely() end
        fit_bucket(count, limit)
      end
      if count.full_at > now then ahead = count.full_at - now end
    end

    local wait = 0 -- time until the cost would be admitted: 0 is at once, -1 never
    if cost > peak then
      wait = -1
    else
      local excess = total + cost - peak
      if excess > 0 then wait = excess_leaves_in(count, limit.width, excess) end
      if has_burst then
        local drains_in = ahead - (peak - cost) * unit
        if drains_in > wait then wait = drains_in end
      end
    end
    local refused = wait ~= 0
    local allowed = not refused or limit.shadow ~= 0
    if allowed and counted then
      count.dirty = true
      local added = MOST - total
      if cost < added then added = cost end
      total = total + added
      count.total, count.head = total, count.head + added
      if count.head > 0 then count.newest = count.slot end
      if has_burst then
        ahead = ahead + cost * unit
        if ahead > peak * unit then ahead = peak * unit end
        count.full_at = now + ahead
        ahead = count.full_at - now -- as stored, with a double's precision
      else
        count.full_at, count.unit = 0, false
      end
    end

    local left, reset = 0, 0
    if total > 0 then reset = (count.newest + 61) * limit.width - now end
    if ahead > reset then reset = ahead end
    if not refused then
      left = peak - total
      if has_burst then
        local drops = ahead / unit
        drops = drops + -drops % 1
        if peak - drops < left then left = peak - drops end
      end
      left = left - (peak - limit.amount)
      if left < 0 then left = 0 end
    end
    local retry = allowed and -1 or wait
    reply[#reply + 1] =
      pack('<BBI4i8i8i8', allowed and 1 or 0, 0, refused and 1 or 0, retry, left, reset)
  end
end

for name, count in pairs(counts) do
  if count.dirty then
    -- SET would free the old value synchronously: 230 ms for a set of a million.
    if of_another_type and of_another_type[name] then call('UNLINK', name) end
    local write = count.total and write_window or write_rarely
    write(name, count)
  end
end
reply[1] = pack('<i8i8', now, foreign)
return table.concat(reply)
