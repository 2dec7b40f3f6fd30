-- One sliding window with a burst, decided and counted in one call: what decide.lua of the gateway
-- does, for one limit and one request. 61 slots of a sixtieth of the window, and a bucket.
--
-- KEYS[1]  the name of the count
-- ARGV     limit, burst, window in microseconds
-- Returns  allowed, remaining, reset after (s), reset (Unix s), retry after (s)

local max, min, floor, ceil = math.max, math.min, math.floor, math.ceil
-- Slot, the newest slot that counted something, total, full_at, count of the slot; then the older.
local HEAD = '<ddddI4'

local limit, burst, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local width, unit = ceil(window / 60), ceil(window / limit)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local slot = floor(now / width)

local newest, total, full_at, head, tail = 0, 0, 0, 0, ''
local value = redis.call('GET', KEYS[1])
if value then
  local then_, at
  then_, newest, total, full_at, head, at = struct.unpack(HEAD, value)
  tail = string.sub(value, at)
  local passed = slot - then_
  if passed < 0 then
    slot = then_ -- the clock stepped back: counted where it was
  elseif passed > 60 then
    total, head, tail = 0, 0, ''
  elseif passed > 0 then
    tail = string.rep('\0', 4 * (passed - 1)) .. struct.pack('<I4', head) .. tail
    head = 0
    for at_ = 241, #tail, 4 do total = total - struct.unpack('<I4', tail, at_) end
    tail = string.sub(tail, 1, 240)
  end
end

local ahead = max(0, full_at - now)
local allowed = total + 1 <= burst and ahead + unit <= burst * unit
local retry = 0
if allowed then
  total, head, ahead = total + 1, head + 1, ahead + unit
  newest, full_at = slot, now + ahead
else
  retry = max(0, ahead + unit - burst * unit)
  local excess, age = total + 1 - burst, #tail / 4 + 1
  if excess > 0 then
    while excess > 0 do
      age = age - 1
      excess = excess - (age == 0 and head or (struct.unpack('<I4', tail, age * 4 - 3)))
    end
    retry = max(retry, (slot - age + 61) * width - now)
  end
end

local reset = max(ahead, total > 0 and (newest + 61) * width - now or 0)
if allowed then
  local state = struct.pack(HEAD, slot, newest, total, full_at, head) .. tail
  redis.call('SET', KEYS[1], state, 'PX', ceil((reset + width) / 1000))
end
local remaining = max(0, min(burst - total, burst - ceil(ahead / unit)) - (burst - limit))
return {
  allowed and 1 or 0, remaining, ceil(reset / 1000000), ceil((now + reset) / 1000000),
  max(1, ceil(retry / 1000000)),
}
