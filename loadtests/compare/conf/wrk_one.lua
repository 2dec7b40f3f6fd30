-- The same request again and again: -- FILE METHOD BODY_BYTES CONNECTION
--   FILE        its first line is the key: a command line would show it to everybody
--   CONNECTION  keep, or close: each request has a connection of its own
function init(args)
  wrk.method = args[2]
  wrk.headers["Authorization"] = "Bearer " .. io.open(args[1]):read("*l")
  if tonumber(args[3]) > 0 then wrk.body = string.rep("x", tonumber(args[3])) end
  if args[4] == "close" then wrk.headers["Connection"] = "close" end
end
