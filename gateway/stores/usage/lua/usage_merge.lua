-- Merges a part of a journal into the buckets of its keys.
--
-- KEYS  1     the journal; 2: the set of open journals
--       3...  each key
-- ARGV  1     the journal's length when it was read; if it has another length now, it has changed
--       2     what remains of it after this step; "": it is deleted
--       10    its label in the set of open journals
--       11... for each key the number of names, each with its requests, and the measures
-- Returns 1; 0: the journal has changed, and nothing was done; -N: nothing was done, because texts
-- have to be closed: only the first N of these keys can be merged in one step.

-- The most bytes of texts to close in one step; a single one may be longer.
local MOST_CLOSED = 8000

local length = redis.pcall('STRLEN', KEYS[1])
if (tonumber(length) or 0) ~= tonumber(ARGV[1]) then return 0 end

local texts = texts_from(3)
local size = 0
for place = 3, #KEYS do
  size = size + (closes(texts[place]) or 0)
  if size > MOST_CLOSED and place > 3 then return 3 - place end
end

local at = 10
for place = 3, #KEYS do at = count(texts[place], place, at + 1) end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
  redis.pcall('SREM', KEYS[2], ARGV[10])
else
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
return 1
