-- What counts use; usage_add.lua or usage_settle.lua follows this text.
--
-- ARGV  1, 2  see there
--       3-5   what the fields begin with in a subject's three hashes: its minutes, hours, days
--       6-8   when these hashes end, Unix seconds
--
-- What others have put under our names is taken for nothing, so that nothing is counted by half.

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

-- Counts one subject. Its hashes stand in KEYS from `place` on; in ARGV, from `at` on, how many
-- fields there are, and then so many pairs of a field without its beginning and the requests.
-- Returns where its words end, and whether it has a field that is new today.
local function count(place, at)
  local last, is_new = at + 2 * tonumber(ARGV[at]), false
  for word = at + 1, last, 2 do
    local requests = tonumber(ARGV[word + 1])
    for grain = 0, 2 do
      local name = KEYS[place + grain]
      local now = write('HINCRBY', name, ARGV[3 + grain] .. ARGV[word], ARGV[word + 1])
      -- A field that is new may be the first of its hash.
      if now == requests then
        redis.call('EXPIREAT', name, ARGV[6 + grain])
        is_new = is_new or grain == 2
      end
    end
  end
  return last, is_new
end

