-- Decides a batch of checks in one atomic step. The arithmetic is that of domain/window.py, which
-- is the place to read it; here it is laid out so that a decision costs a few microseconds.
--
-- KEYS    the names of the counts, check after check, limit after limit
-- ARGV[1] the moment to decide at, in microseconds; 0: now, by the server's clock
-- ARGV[2] the checks, packed little-endian (see stores/script.py, which packs and unpacks):
--         cost f64 (negative: judged, but not counted), limits u8, plus 128 where the number of
--         the request's lease follows, f64; for each limit: kind u8 (0 rate, 1 rate with burst,
--         2 quota, 3 concurrency), shadow u8, amount f64, peak f64, width f64 (slot, the quota's
--         period, or how long a lease is held), unit f64, slot f64
-- Returns now i64 and the number of values found that were not ours i64; for each check: allowed
--         u8, governing u8, refusing u32, retry i64 (-1: none), and for each of its limits
--         remaining i64, reset i64.
--
-- A count is read once and written once per batch, however many checks share it; in between it
-- is a table in `counts`. What is stored of a rate: slot, the newest counted slot, total, full_at
-- as f64, then what each slot has counted as u32, newest first; of a quota: period and count; of a
-- concurrency limit a sorted set: the leases' numbers, scored by the moment until which each is
-- held, so that one can be renewed or given back without this script (see stores/leases.py). A
-- value of another form or type is not ours: it is taken for empty, reported, and overwritten
-- when the count is next written.

local call, pcall_, floor, ceil = redis.call, redis.pcall, math.floor, math.ceil
local max, min, sub, rep = math.max, math.min, string.sub, string.rep
local pack, unpack_, unpack, format = struct.pack, struct.unpack, unpack, string.format

local BUCKET, QUOTA, LEASES = 1, 2, 3
local RATE_TAG, QUOTA_TAG = 29287, 29031 -- "gr" and "gq", little-endian
local RATE, RATE_HEAD, RATE_MOST = '<I2ddddI4', 38, 278
local PERIOD, PERIOD_SIZE = '<I2dd', 18
local LIMIT, LIMIT_SIZE = '<BBddddd', 42
local LEASED = 128
local MOST = 4294967295
local LEASE_RETRY = 1000000
local SIMULATED_TTL_MS = 86400000

local now = tonumber(ARGV[1])
local simulated = now > 0
if not simulated then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local counts, limits, foreign = {}, {}, 0

local function stored(name)
  local value = pcall_('GET', name)
  if type(value) == 'string' then return value end
  if value then foreign = foreign + 1 end -- an error: a hash, a list
end

local function read_period(name, limit)
  local index, value = floor(now / limit.width), stored(name)
  local count = {index = index, count = 0, limit = limit}
  if value then
    if #value == PERIOD_SIZE and sub(value, 1, 2) == 'gq' then
      local _, was, counted = unpack_(PERIOD, value)
      if was >= index then
        count.count, count.dirty = counted, was > index
      end
    else
      foreign = foreign + 1
    end
  end
  return count
end

-- `head` is what the slot of now has counted, `tail` the packed counts of those before it.
local function read_window(name, limit)
  local slot, value = floor(now / limit.width), stored(name)
  local count = {slot = slot, newest = slot, total = 0, full_at = 0, head = 0, tail = '', limit = limit}
  if not value then return count end
  local size = #value
  if size < RATE_HEAD or size > RATE_MOST or size % 4 ~= 2 or sub(value, 1, 2) ~= 'gr' then
    foreign = foreign + 1
    return count
  end
  local _, was, newest, total, full_at, head, at = unpack_(RATE, value)
  count.full_at = full_at
  local passed = slot - was
  if passed == 0 then
    count.newest, count.total, count.head, count.tail = newest, total, head, sub(value, at)
  elseif passed > 0 and passed <= 60 then
    local keep = at + (60 - passed) * 4 -- the slots from here on have left the window
    for gone = keep, size, 4 do
      total = total - unpack_('<I4', value, gone)
    end
    count.newest, count.total = newest, total
    count.tail = rep('\0', (passed - 1) * 4) .. sub(value, RATE_HEAD - 3, keep - 1)
  elseif passed < 0 then -- the clock stepped back: what is ahead of now is counted as now
    local from = min(at - passed * 4, size + 1)
    for ahead = at, from - 1, 4 do
      head = head + unpack_('<I4', value, ahead)
    end
    count.total, count.head, count.tail, count.dirty = total, head, sub(value, from), true
    count.newest = head > 0 and slot or newest
  end
  return count
end

-- `latest` is the moment at which the last of the leases lapses, `taken` those of this batch.
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

local function read_count(name, limit)
  if limit.kind < QUOTA then return read_window(name, limit) end
  return (limit.kind == QUOTA and read_period or read_leases)(name, limit)
end

-- Until enough slots have left the window for `excess` to be gone.
local function excess_leaves_in(count, width, excess)
  if count.excess ~= excess then
    local ages = #count.tail / 4
    local older = count.older or {unpack_('<' .. rep('I4', ages), count.tail)}
    local age, left = ages + 1, excess
    while left > 0 do
      age = age - 1
      left = left - (age == 0 and count.head or older[age])
    end
    count.older, count.excess, count.leaves_at = older, excess, (count.slot - age + 61) * width
  end
  return count.leaves_at - now
end

-- Until the cost would be admitted: 0 is at once, -1 never.
local function wait_for(count, limit, cost)
  if limit.kind >= QUOTA then
    if limit.kind == LEASES then
      return count.held + min(cost, 1) <= limit.amount and 0 or LEASE_RETRY
    end
    if count.count + cost <= limit.amount then return 0 end
    return cost <= limit.amount and (count.index + 1) * limit.width - now or -1
  end
  local peak = limit.peak
  if limit.kind == BUCKET and count.full_at > now + peak * limit.unit then
    -- The clock stepped back, or a change of policy made the bucket smaller.
    count.full_at, count.dirty = now + peak * limit.unit, true
  end
  if cost > peak then return -1 end
  local wait, excess = 0, count.total + cost - peak
  if excess > 0 then wait = excess_leaves_in(count, limit.width, excess) end
  if limit.kind == BUCKET then
    wait = max(wait, max(0, count.full_at - now) - (peak - cost) * limit.unit)
  end
  return wait
end

local function add(count, limit, cost, lease)
  if limit.kind == LEASES then
    if lease then
      count.held, count.latest, count.dirty = count.held + 1, now + limit.width, true
      count.taken[#count.taken + 1] = lease
    end
    return
  end
  count.dirty = true
  if limit.kind == QUOTA then
    count.count = count.count + cost
    return
  end
  local added = min(cost, MOST - count.total)
  count.total, count.head = count.total + added, count.head + added
  if count.head > 0 then count.newest = count.slot end
  if limit.kind == BUCKET then
    local most = limit.peak * limit.unit
    count.full_at = now + min(max(0, count.full_at - now) + cost * limit.unit, most)
  end
end

local function figures(count, limit)
  if limit.kind >= QUOTA then
    if limit.kind == LEASES then
      return max(0, limit.amount - count.held), max(0, count.latest - now)
    end
    return max(0, limit.amount - count.count), (count.index + 1) * limit.width - now
  end
  local left, reset = limit.peak - count.total, 0
  if count.total > 0 then reset = (count.newest + 61) * limit.width - now end
  if limit.kind == BUCKET then
    local ahead = max(0, count.full_at - now)
    left, reset = min(left, limit.peak - ceil(ahead / limit.unit)), max(reset, ahead)
  end
  return max(0, left - (limit.peak - limit.amount)), reset
end

local function time_to_live_ms(ends, limit)
  local ttl_ms = max(1000, ceil((ends - now + limit.slot) / 1000))
  return simulated and max(ttl_ms, SIMULATED_TTL_MS) or ttl_ms
end

local function write_leases(name, count)
  local limit = count.limit
  local latest = format('%.0f', now + limit.width)
  if count.foreign then call('DEL', name) end
  if count.found then call('ZREMRANGEBYSCORE', name, '-inf', format('%.0f', now)) end
  if count.ahead then
    for _, number in ipairs(call('ZRANGEBYSCORE', name, '(' .. latest, '+inf')) do
      call('ZADD', name, latest, number)
    end
  end
  for _, number in ipairs(count.taken) do
    call('ZADD', name, latest, format('%.0f', number))
  end
  call('PEXPIRE', name, time_to_live_ms(count.latest, limit))
end

local function write(name, count)
  local limit, value, ends = count.limit
  if limit.kind == LEASES then return write_leases(name, count) end
  if limit.kind == QUOTA then
    value = pack(PERIOD, QUOTA_TAG, count.index, count.count)
    ends = (count.index + 1) * limit.width
  else
    value = pack(RATE, RATE_TAG, count.slot, count.newest, count.total, count.full_at, count.head)
      .. count.tail
    ends = max((count.newest + 61) * limit.width, count.full_at)
  end
  call('SET', name, value, 'PX', time_to_live_ms(ends, limit))
end

local checks, at, key = ARGV[2], 1, 0
local found, asked, reply, forms = {}, {}, {0}, {}
local row = {}

while at <= #checks do
  local cost, n, next_at = unpack_('<dB', checks, at)
  local lease
  if n >= LEASED then
    lease, next_at = unpack_('<d', checks, next_at)
    n = n - LEASED
  end
  at = next_at
  local counted = cost > 0
  cost = math.abs(cost)
  local refusing, governing, retry = 0, nil, 0
  for k = 1, n do
    -- Most checks of a batch share their figures: unpacked once.
    local text = sub(checks, at, at + LIMIT_SIZE - 1)
    at = at + LIMIT_SIZE
    local limit = limits[text]
    if not limit then
      limit = {}
      limit.kind, limit.shadow, limit.amount, limit.peak, limit.width, limit.unit, limit.slot =
        unpack_(LIMIT, text)
      limits[text] = limit
    end
    local name = KEYS[key + k]
    local count = counts[name]
    if not count then
      count = read_count(name, limit)
      counts[name] = count
    end
    found[k], asked[k] = count, limit
    local wait = wait_for(count, limit, cost)
    if wait ~= 0 then
      refusing = refusing + 2 ^ (k - 1)
      if limit.shadow == 0 and (not governing or (retry >= 0 and (wait < 0 or wait > retry))) then
        governing, retry = k, wait
      end
    end
    row[3 + 2 * k] = wait -- until the limit's figures take its place
  end
  key = key + n
  local allowed, least = not governing, nil
  for k = 1, n do
    local count, limit = found[k], asked[k]
    if allowed and counted then add(count, limit, cost, lease) end
    local left, reset = figures(count, limit)
    if row[3 + 2 * k] ~= 0 then left = 0 end
    row[3 + 2 * k], row[4 + 2 * k] = left, reset
    if allowed and limit.shadow == 0 and (not least or left < least) then
      governing, least = k, left
    end
  end
  row[1], row[2], row[3], row[4] = allowed and 1 or 0, (governing or 1) - 1, refusing, allowed and -1 or retry
  local form = forms[n]
  if not form then
    form = '<BBI4i8' .. rep('i8i8', n)
    forms[n] = form
  end
  reply[#reply + 1] = pack(form, unpack(row, 1, 4 + 2 * n))
end

for name, count in pairs(counts) do
  if count.dirty then write(name, count) end
end
reply[1] = pack('<i8i8', now, foreign)
return table.concat(reply)
