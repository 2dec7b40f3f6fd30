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
--       13... for each subject: "key" or "plan", its name, how many fields, and then so many pairs
--             of a field without its beginning, and the requests
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

-- The busiest of a bucket, by the space-saving algorithm: a newcomer takes the place and the figure
-- of the least. For a chunk at once, as a call for each key and step would take four times as long.
-- Newcomers come in the order of their requests. Whoever takes the least's figure then has no less
-- than the newcomer before it, so the least of all is always the first of what was there (`least`)
-- or the first of the newcomers that are in (`joined`).
local function note_busy(name, keys, requests, ends)
  local figures = write('ZMSCORE', name, unpack(keys))
  local changes, newcomers = {}, {}
  for at, key in ipairs(keys) do
    if figures[at] then
      changes[#changes + 1] = string.format('%.0f', figures[at] + requests[at])
      changes[#changes + 1] = key
    else
      newcomers[#newcomers + 1] = at
    end
  end
  if #changes > 0 then redis.call('ZADD', name, unpack(changes)) end
  if #newcomers == 0 then return end
  table.sort(newcomers, function(one, other) return requests[one] < requests[other] end)

  local kept = redis.call('ZCARD', name)
  local room = tonumber(ARGV[12]) - kept
  local least, joined, gone = {}, {}, {}
  if #newcomers > room then
    least = redis.call('ZRANGE', name, 0, #newcomers - room - 1, 'WITHSCORES')
  end
  local next_least, first = 1, 1
  for _, at in ipairs(newcomers) do
    local figure = requests[at]
    if room > 0 then
      room = room - 1
    elseif joined[first] and (not least[next_least]
        or joined[first].figure < tonumber(least[next_least + 1])) then
      figure = figure + joined[first].figure
      first = first + 1
    else
      figure = figure + least[next_least + 1]
      gone[#gone + 1] = least[next_least]
      next_least = next_least + 2
    end
    joined[#joined + 1] = {key = keys[at], figure = figure}
  end
  if #gone > 0 then redis.call('ZREM', name, unpack(gone)) end
  changes = {}
  for at = first, #joined do
    changes[#changes + 1] = string.format('%.0f', joined[at].figure)
    changes[#changes + 1] = joined[at].key
  end
  redis.call('ZADD', name, unpack(changes))
  if kept == 0 then redis.call('EXPIREAT', name, ends) end
end

if tonumber(ARGV[1]) <= tonumber(redis.call('GET', KEYS[1]) or '0') then return 0 end

local keys, sums = {}, {}
local at, place = 13, 6
while at <= #ARGV do
  local kind, subject, fields = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  local sum = 0
  for _ = 1, fields do
    local field, requests = ARGV[at], tonumber(ARGV[at + 1])
    sum = sum + requests
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
  if kind == 'key' then
    keys[#keys + 1], sums[#sums + 1] = subject, sum
  end
  place = place + 3
end
if #keys > 0 then
  for grain = 0, 2 do note_busy(KEYS[2 + grain], keys, sums, ARGV[9 + grain]) end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return 1
