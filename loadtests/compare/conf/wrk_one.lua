-- The same request again and again: -- FILE METHOD BODY_BYTES
--   FILE  its first line is the key: a command line would show it to everybody
function init(args)
  wrk.method = args[2]
  wrk.headers["Authorization"] = "Bearer " .. io.open(args[1]):read("*l")
  if tonumber(args[3]) > 0 then wrk.body = string.rep("x", tonumber(args[3])) end
end
