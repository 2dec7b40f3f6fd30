-- Functions that count usage; usage_add.lua or usage_merge.lua is appended to this file.
--
-- Each subject has a text with the minutes of its open hour, the last hour with requests. At the
-- first request of a later hour the open one is closed: its minutes are moved to the subject's text
-- of minutes, and their sum is added to its texts of hours and of days. Such a text has the buckets
-- of one period. A long text, of a subject with many names, is closed within its hour: adding up a
-- kilobyte takes the store 0.15 ms or more. All texts have one format:
--
--   api|admitted,api|limited:plan   names, ROUTE|OUTCOME; each has an index, from 0
--   hpnk0:3,1                       the newest bucket: its number since 1970, requests by index
--   2a                              the bucket before it: requests at index 0 only
--   4,1@2:5                         the fifth bucket before that one: 4 at index 0, 1 at index 2
--
-- Latencies and bytes of answered requests, by route, are a line before the open hour's text; closing
-- adds them as counts to the text of days, and those of plans to that of hours as well:
--
--   ~api=1a.7f3.1c.2+api=0.88.1d.1   see measures.py; what follows the + is not added up yet
--   api|~i,api|~o,api|~1c            their names in the other texts: bytes in, bytes out, latencies
--
-- Numbers have base 36. A hash of buckets would take five to twelve times the memory. Rewriting a text
-- is fast only while it is short, which is why closed hours have separate texts.
--
-- KEYS  see the appended file; those of subjects are the texts of their open hours, and the names of
--       the other texts begin with them, so that all are in one slot of a cluster
-- ARGV  1, 2  see the appended file
--       3     the number of the minute to count in, since 1970
--       4-6   buckets in a period: of minutes, hours and days
--       7-9   how long their texts are kept after the period, seconds
--
-- Values that the gateway has not written are ignored, and so are texts that are longer than the bounds
-- below: reading those would block the store.

-- The most bytes of an open hour, without the names. A key that uses 20 names each minute reaches it
-- in an hour.
local MOST_OPEN = 3000
-- The most bytes of a text. One with a thousand names in each of six hours' minutes has 1.1 MB.
local MOST_TEXT = 2000000
-- The most bytes of a text's names, and of the requests of its newest bucket.
local MOST_NAMES = 1000000
local MOST_COUNTS = 250000
-- The most bytes of the line of measures; a longer one is dropped. 1,000 routes with 40 different
-- latencies each have some 200,000.
local MOST_MEASURES = 200000
-- How many bytes more than the sum has are appended to it, until all is added up.
local MOST_APPENDED = 500
-- The finest closed text that has the measures: of days (keys); usage_add.lua sets it for plans.
local measured_grain = 3
local MINUTES = {1, 60, 1440}
local MARKS = {':m:', ':h:', ':d:'}
local minute = tonumber(ARGV[3])
-- All buckets of a text are nearer to each other than this.
local LONGEST = math.max(ARGV[4], ARGV[5], ARGV[6])

local DIGITS = '0123456789abcdefghijklmnopqrstuvwxyz'
-- A cache of numbers in base 36: a batch writes the same few many times.
local written = {}

local function base36(number)
  local text = written[number]
  if not text then
    local digit = number % 36 + 1
    text = number < 36 and '' or base36(math.floor(number / 36))
    text = text .. string.sub(DIGITS, digit, digit)
    written[number] = text
  end
  return text
end

local function read(text) return tonumber(text, 36) end

-- By line of names: the index of each name.
local known = {}

local function read_names(line)
  local places, size = {}, 0
  for name in string.gmatch(line, '[^,]+') do places[name], size = size, size + 1 end
  return places, size
end

-- Adds a bucket's requests to `found`, by index, and new indexes to `order`.
local function read_counts(counts, found, order)
  local place = 0
  for requests, at, elsewhere in string.gmatch(counts, '(%w+)(@?)(%w*)') do
    if at == '@' then place = read(elsewhere) or place end
    if order and not found[place] then order[#order + 1] = place end
    found[place] = (found[place] or 0) + (read(requests) or 0)
    place = place + 1
  end
end

local function write_counts(found, order)
  local written, after = {}, 0
  for at, place in ipairs(order) do
    local requests = base36(found[place])
    written[at] = place == after and requests or requests .. '@' .. base36(place)
    after = place + 1
  end
  return table.concat(written, ',')
end

-- Adds requests to a bucket: words[first] to words[last] are pairs of a name and its requests.
-- Returns the line of names, to which new ones are appended, and the bucket.
local function add(line, counts, words, first, last)
  local places = known[line] or read_names(line)
  known[line] = places
  if counts == '' and last == first + 1 and places[words[first]] == 0 then
    return line, base36(words[last] + 0)
  end
  local found, order, names, size = {}, {}, {line ~= '' and line or nil}, nil
  read_counts(counts, found, order)
  for word = first, last, 2 do
    local name = words[word]
    if not places[name] then
      -- `known[line]` must stay as it is.
      if not size then places, size = read_names(line) end
      places[name], size = size, size + 1
      names[#names + 1] = name
    end
    local place = places[name]
    if not found[place] then order[#order + 1] = place end
    found[place] = (found[place] or 0) + words[word + 1]
  end
  if size then
    line = table.concat(names, ',')
    known[line] = places
  end
  table.sort(order)
  return line, write_counts(found, order)
end

-- A text without its line of measures, and that line without its mark.
local function split(text)
  if not text or string.sub(text, 1, 1) ~= '~' then return text, '' end
  local ends = string.find(text, '\n', 1, true)
  if not ends then return nil, '' end
  return string.sub(text, ends + 1), ends <= MOST_MEASURES and string.sub(text, 2, ends - 1) or ''
end

-- Calls `each` with each route, its numbers of bytes in and out, and its latencies by bucket.
local function add_up(line, each)
  local sums, routes = {}, {}
  for entry in string.gmatch(line, '[^;+]+') do
    local _, _, route, packed = string.find(entry, '^([^=]+)=([%x.]+)$')
    local sum = sums[route or '']
    if route and not sum then
      sum = {0, 0, {}, {}}
      sums[route], routes[#routes + 1] = sum, route
    end
    local at, place, latencies = 0, nil, route and sum[3]
    for digits in string.gmatch(packed or '', '%x+') do
      at = at + 1
      -- Longer numbers are not the gateway's.
      local value = #digits <= 13 and tonumber(digits, 16) or 0
      if at <= 2 then
        sum[at] = sum[at] + value
      elseif at % 2 == 1 then
        place = value
      elseif place < 256 then
        if not latencies[place] then table.insert(sum[4], place) end
        latencies[place] = (latencies[place] or 0) + value
      end
    end
  end
  for _, route in ipairs(routes) do each(route, unpack(sums[route])) end
end

-- A line of measures with more of them.
local function measured(line, more)
  if more == '' then return line end
  local sum = (string.find(line, '+', 1, true) or #line + 1) - 1
  line = line .. (sum == #line and '+' or ';') .. more
  if #line - 2 * sum <= MOST_APPENDED then return line end
  local written = {}
  add_up(line, function(route, bytes_in, bytes_out, latencies, order)
    local packed = {string.format('%s=%x.%x', route, bytes_in, bytes_out)}
    for _, place in ipairs(order) do
      packed[#packed + 1] = string.format('%x.%x', place, latencies[place])
    end
    written[#written + 1] = table.concat(packed, '.')
  end)
  return table.concat(written, ';')
end

-- Appends the measures of a line to words: pairs of a name and a number.
local function append_measures(words, line)
  add_up(line, function(route, bytes_in, bytes_out, latencies, order)
    local function append(name, value)
      if value > 0 then
        words[#words + 1] = route .. '|~' .. name
        words[#words + 1] = value
      end
    end
    append('i', bytes_in)
    append('o', bytes_out)
    for _, place in ipairs(order) do append(string.format('%02x', place), latencies[place]) end
  end)
end

local function with_measures(line, text)
  return line == '' and text or '~' .. line .. '\n' .. text
end

-- A text's line of names, the number and the counts of its newest bucket, and the end of that bucket;
-- nothing, if the gateway has not written the text.
local function parse(text)
  local _, last, line, number, counts = string.find(text or '', '^([^\n]*)\n(%w+):([^\n]*)')
  if not line or #line > MOST_NAMES or #counts > MOST_COUNTS then return nil end
  return line, read(number), counts, last
end

-- The suffix of a bucket that is this many buckets before the one above it.
local function steps(buckets)
  return buckets == 1 and '' or ':' .. base36(buckets)
end

-- A text with more requests in the bucket of this number; `words`, `first` and `last` as for `add`.
local function counted(text, number, words, first, last)
  local line, at, counts, ends = parse(text)
  if not line then
    line, counts = add('', '', words, first, last)
    return line .. '\n' .. base36(number) .. ':' .. counts
  end
  if at < number then
    local older = counts .. steps(number - at) .. string.sub(text, ends + 1)
    line, counts = add(line, '', words, first, last)
    return line .. '\n' .. base36(number) .. ':' .. counts .. '\n' .. older
  end
  local from, begins, below = #line + 1, ends - #counts, nil
  while at > number do
    local _, its_end, its_counts, before = string.find(text, '^\n([^\n:]*):?(%w*)', ends + 1)
    local older = its_end and at - math.max(1, read(before) or 1)
    if not older or older < number then
      below = older and '\n' .. its_counts .. steps(number - older) .. string.sub(text, its_end + 1)
      break
    end
    at, counts, begins, ends = older, its_counts, ends + 1, its_end
  end
  local above
  if at > number then
    above, counts, below = string.sub(text, from, ends) .. '\n', '', steps(at - number) .. (below or '')
  else
    above, below = string.sub(text, from, begins), string.sub(text, begins + #counts + 1)
  end
  line, counts = add(line, counts, words, first, last)
  return line .. above .. counts .. below
end

local function period(grain, number) return math.floor(number / ARGV[3 + grain]) end

local function ends(grain, number)
  local after = (period(grain, number) + 1) * ARGV[3 + grain]
  return string.format('%.0f', after * MINUTES[grain] * 60 + ARGV[6 + grain])
end

local function name_of(subject, grain, number)
  return subject .. MARKS[grain] .. period(grain, number)
end

-- The text of this name; nil: a value of another type, or a longer one. "": there is none.
local function get(name)
  local text = redis.pcall('GETRANGE', name, 0, MOST_TEXT)
  if type(text) == 'table' then
    if string.find(text.err, 'WRONGTYPE') then return nil end
    text = redis.call('GETRANGE', name, 0, MOST_TEXT)
  end
  return #text <= MOST_TEXT and text or nil
end

-- The name of the text that has the bucket of this number, and that text. A text whose newest bucket
-- belongs into a later one was not written by the gateway.
local function text_of(subject, grain, number)
  local name = name_of(subject, grain, number)
  local text = get(name)
  local line, at = parse(text)
  if line and period(grain, at) > period(grain, number) then text = nil end
  return name, text
end

local function count_in(subject, grain, number, words, first, last)
  local name, text = text_of(subject, grain, number)
  text = counted(text, number, words, first, last)
  redis.call('SET', name, text, 'EXAT', ends(grain, number))
end

-- Requests by index as pairs of a name and its requests.
local function named(line, found)
  local words, place = {}, 0
  for name in string.gmatch(line, '[^,]+') do
    if found[place] then
      words[#words + 1] = name
      words[#words + 1] = found[place]
    end
    place = place + 1
  end
  return words
end

-- The sum of a text's buckets, as pairs of a name and its requests; and the number of the oldest.
local function sum(text)
  local line, number, counts, last = parse(text)
  local found, newest = {}, number
  read_counts(counts, found)
  for older, before in string.gmatch(string.sub(text, last + 1), '\n([^\n:]*):?(%w*)') do
    local below = number - math.max(1, read(before) or 1)
    if newest - below >= LONGEST then break end
    number = below
    local requests = read(older)
    if requests then
      found[0] = (found[0] or 0) + requests
    else
      read_counts(older, found)
    end
  end
  return named(line, found), number
end

-- The buckets of two texts in one text. Usually all of `text` are newer (`oldest` is the number of
-- its last one), and its names begin with those of `older`: then it is put in front.
local function joined(text, oldest, older)
  local line, number, counts, last = parse(text)
  local older_line, older_number, older_counts, older_last = parse(older)
  if not older_line then return text end
  local begins = older_line .. ','
  if older_number < oldest and string.sub(line .. ',', 1, #begins) == begins then
    local rest = older_counts .. steps(oldest - older_number) .. string.sub(older, older_last + 1)
    return text .. '\n' .. rest
  end
  local buckets, newest = {{number, counts}}, number
  for its_counts, before in string.gmatch(string.sub(text, last + 1), '\n([^\n:]*):?(%w*)') do
    number = number - math.max(1, read(before) or 1)
    if newest - number >= LONGEST then break end
    buckets[#buckets + 1] = {number, its_counts}
  end
  for at = #buckets, 1, -1 do
    local found = {}
    read_counts(buckets[at][2], found)
    local words = named(line, found)
    older = counted(older, buckets[at][1], words, 1, #words)
  end
  return older
end

-- Closes the open hour. Returns the line of names of the text that now has its minutes.
local function close(subject, text, open, measures)
  local words, oldest = sum(text)
  for grain = 2, 3 do
    if grain == measured_grain then append_measures(words, measures) end
    count_in(subject, grain, math.floor(open / MINUTES[grain]), words, 1, #words)
  end
  local name, older = text_of(subject, 1, open)
  text = joined(text, oldest, older)
  redis.call('SET', name, text, 'EXAT', ends(1, open))
  return parse(text)
end

local function hour_of(its_minute) return math.floor(its_minute / 60) end

-- The bytes of an open hour's text that has to be closed before this minute is counted; nil: it stays
-- open. And the number of its newest minute; nil: the gateway has not written the text.
local function closes(raw)
  local text, measures = split(raw)
  local line, open = parse(text)
  local size = line and #text - #line + #measures
  local is_long = size and size - #measures > MOST_OPEN
  if line and open < minute and (hour_of(open) < hour_of(minute) or is_long) then
    return size, open
  end
  return nil, open
end

-- Counts a subject, whose open hour's text is KEYS[place]. ARGV[at] is the number of names that follow,
-- each with its requests, and then the measures. Returns where they end, and whether a new text was
-- written.
local function count(raw, place, at)
  local subject, first, last = KEYS[place], at + 1, at + 2 * ARGV[at]
  local size, open = closes(raw)
  local text, measures = split(raw)
  local more = ARGV[last + 1]
  local is_open = open and not size
  if is_open and hour_of(open) == hour_of(minute) then
    text = with_measures(measured(measures, more), counted(text, minute, ARGV, first, last))
    redis.call('SET', subject, text, 'KEEPTTL')
    return last + 1, false
  end
  if is_open then
    -- The batch is late, or the clock of another gateway is ahead.
    local words = {unpack(ARGV, first, last)}
    for grain = 1, 3 do
      if grain == measured_grain then append_measures(words, more) end
      count_in(subject, grain, math.floor(minute / MINUTES[grain]), words, 1, #words)
    end
    return last + 1, false
  end
  local line = open and close(subject, text, open, measures)
  -- The same names at the same indexes, for `joined`.
  local has_names = line and period(1, open) == period(1, minute)
  text = counted(has_names and line .. '\n' .. base36(minute) .. ':', minute, ARGV, first, last)
  text = with_measures(measured('', more), text)
  redis.call('SET', subject, text, 'EXAT', ends(3, math.floor(minute / 1440)))
  return last + 1, true
end

-- The texts of the names from KEYS[first] on, by index in KEYS.
local function texts_from(first)
  local found = {}
  for place = first, #KEYS do found[place] = get(KEYS[place]) end
  return found
end
