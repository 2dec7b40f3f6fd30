-- Moves a part of a journal into the buckets of its keys.
--
-- KEYS  1     the journal; 2: the set of those that are open
--       3...  for each key its three hashes
-- ARGV  1     the journal's length; with another one it is not what it was thought to be
--       2     what stays in it; "" ends it
--       9     what it is called among those open
--       10... for each key its fields
-- Returns 1; 0: the journal has changed, and nothing was done.

local length = redis.pcall('STRLEN', KEYS[1])
if (tonumber(length) or 0) ~= tonumber(ARGV[1]) then return 0 end

local at = 9
for place = 3, #KEYS, 3 do at = count(place, at + 1) end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  write('SREM', KEYS[2], ARGV[9])
else
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return 1
