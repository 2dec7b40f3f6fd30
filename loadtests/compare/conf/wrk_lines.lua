-- Requests with a line of a file in each: -- FILE ORDER FORM VALUE
--   ORDER  random or sequence: which line comes next
--   FORM   key: the line is the key, VALUE the path; path: the line is the path, VALUE the key
-- The requests are built before the start, so that choosing one is all that each costs.
local requests, order, at = {}, "random", 0

function init(args)
  order = args[2]
  for line in io.lines(args[1]) do
    local key, path = line, args[4]
    if args[3] == "path" then key, path = args[4], line end
    requests[#requests + 1] = wrk.format("GET", path, {["Authorization"] = "Bearer " .. key})
  end
  math.randomseed(os.time())
end

function request()
  if order == "random" then return requests[math.random(#requests)] end
  at = at % #requests + 1
  return requests[at]
end
