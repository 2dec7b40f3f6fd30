-- Counts a worker's batch once, however often it is sent: plans and the routes of tools in their
-- buckets, keys in journals.
--
-- KEYS  1     the number of this worker's last batch
--       2-4   the busiest keys of the batch's minute, hour and day
--       5     the plans with any usage; 6: the routes with calls of tools
--       7...  for each journal the set of open journals, and its own name; then each plan or route
-- ARGV  1     the batch's number; 2: how long to keep it, in seconds
--       10-12 when the busiest keys of the three buckets expire, Unix seconds
--       13    the most of a bucket's busiest keys to keep
--       14    when the journals expire, Unix seconds; 15: their label in the sets of open journals
--       16    the number of busy keys, and then for each its id and its requests;
--             the number of journals, and then the lines to append to each;
--             and for each plan or route the place in KEYS of the set that it is in, its name, the
--             number of names, each with its requests, and the measures

local function write(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE') then redis.call('DEL', name) end
    answer = redis.call(command, name, ...)
  end
  return answer
end

-- When there are twice as many as are kept, the least busy ones are removed.
local function note_busy(name, first, last, ends)
  for at = first, last, 2 do write('ZINCRBY', name, ARGV[at + 1], ARGV[at]) end
  local kept, most = redis.call('ZCARD', name), tonumber(ARGV[13])
  if kept > 2 * most then redis.call('ZREMRANGEBYRANK', name, 0, kept - most - 1) end
  if kept <= (last - first + 1) / 2 then redis.call('EXPIREAT', name, ends) end
end

if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end

local at = 16 + 2 * ARGV[16]
if at > 16 then
  for grain = 0, 2 do note_busy(KEYS[2 + grain], 17, at, ARGV[10 + grain]) end
end

local place, journals = 7, tonumber(ARGV[at + 1])
at = at + 1
for _ = 1, journals do
  at = at + 1
  if write('APPEND', KEYS[place + 1], ARGV[at]) == #ARGV[at] then
    redis.call('EXPIREAT', KEYS[place + 1], ARGV[14])
    write('SADD', KEYS[place], ARGV[15])
    redis.call('EXPIREAT', KEYS[place], ARGV[14])
  end
  place = place + 2
end

measured_grain = 2
local texts = texts_from(place)
while place <= #KEYS do
  local set, name = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2]
  local last, is_new = count(texts[place], place, at + 3)
  if is_new then write('SADD', set, name) end
  place, at = place + 1, last
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
