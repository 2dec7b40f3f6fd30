-- Moves a part of a journal into the buckets of its keys.
--
-- KEYS  1     the journal; 2: the set of those that are open
--       3...  each key
-- ARGV  1     the journal's length; with another one it is not what it was thought to be
--       2     what stays in it; "" ends it
--       10    what it is called among those open
--       11... for each key how many names there are, and each with its requests
-- Returns 1; 0: the journal has changed, and nothing was done.

local length = redis.pcall('STRLEN', KEYS[1])
if (tonumber(length) or 0) ~= tonumber(ARGV[1]) then return 0 end

local at, texts = 10, texts_from(3)
for place = 3, #KEYS do at = count(texts[place], place, at + 1) end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  redis.pcall('SREM', KEYS[2], ARGV[10])
else
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return 1
