-- Drops events that are over: expired ones, and the oldest until the shard has few enough bytes.
--
-- KEYS: any name in the shard
-- ARGV: the seconds for which what is over is kept, the bytes, the most events and deliveries to drop
-- Returns how many events were dropped, and 1 if there are more to drop.

local expired, bytes = now - tonumber(ARGV[1]) * 1000000, tonumber(ARGV[2])
local left, dropped = tonumber(ARGV[3]), 0
local has = tonumber(redis.call('GET', shard .. 'bytes')) or 0
local found = redis.call('ZRANGE', shard .. 'finished', 0, left, 'WITHSCORES')
for i = 1, #found, 2 do
  if tonumber(found[i + 1]) > expired and has <= bytes then return {dropped, 0} end
  if left <= 0 then return {dropped, 1} end
  local size, deliveries = drop(found[i])
  has, left, dropped = has - size, left - 1 - deliveries, dropped + 1
end
return {dropped, 0}
