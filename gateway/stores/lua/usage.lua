-- Counts a chunk of a worker's batch, once, however often it comes.
--
-- KEYS  1     the number of the last chunk that this worker had counted
--       2-4   the busiest keys of the chunk's minute, hour and day
--       5     the plans that anything was counted for
--       6...  for each subject three hashes: its minutes, hours and days
-- ARGV  1     the chunk's number; 2: for how long to remember it, in seconds
--       3-5   what the chunk's fields begin with in each of the three hashes
--       6-8   when these hashes end; 9-11: when the busiest of the buckets end; Unix seconds
--       12    the busiest keys that are kept of a bucket
--       13... for each subject: "key" or "plan", its name, its requests where it is one of the
--             busiest, else 0, how many fields, and then so many pairs of a field without its
--             beginning, and the requests
--
-- What others have put under our names is taken for nothing, so that no chunk is counted by half.

local function write(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'WRONGTYPE') or string.find(answer.err, 'not an integer') then
      redis.call('DEL', name)
    end
    answer = redis.call(command, name, ...)
  end
  return answer
end

-- When there are twice as many as are kept, the least of them go.
local function note_busy(name, keys, requests, ends)
  for at, key in ipairs(keys) do write('ZINCRBY', name, requests[at], key) end
  local kept, most = redis.call('ZCARD', name), tonumber(ARGV[12])
  if kept > 2 * most then redis.call('ZREMRANGEBYRANK', name, 0, kept - most - 1) end
  if kept <= #keys then redis.call('EXPIREAT', name, ends) end
end

if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end

local keys, sums = {}, {}
local at, place = 13, 6
while at <= #ARGV do
  local kind, subject, noted, fields = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  for _ = 1, fields do
    local field, requests = ARGV[at], tonumber(ARGV[at + 1])
    local first_today = false
    for grain = 0, 2 do
      local name = KEYS[place + grain]
      local now = write('HINCRBY', name, ARGV[3 + grain] .. field, ARGV[at + 1])
      -- A field that is new may be the first of its hash.
      if now == requests then
        redis.call('EXPIREAT', name, ARGV[6 + grain])
        first_today = grain == 2
      end
    end
    if first_today and kind == 'plan' then write('SADD', KEYS[5], subject) end
    at = at + 2
  end
  if noted ~= '0' then
    keys[#keys + 1], sums[#sums + 1] = subject, noted
  end
  place = place + 3
end
if #keys > 0 then
  for grain = 0, 2 do note_busy(KEYS[2 + grain], keys, sums, ARGV[9 + grain]) end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
