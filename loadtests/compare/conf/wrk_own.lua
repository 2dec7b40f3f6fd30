-- Requests with fields of their own, as of a program that writes traces: -- FILE
--   FILE        its first line is the key: a command line would show it to everybody
local number = os.time() * 1e6  -- no run repeats what another one sent

function init(args)
  wrk.headers["Authorization"] = "Bearer " .. io.open(args[1]):read("*l")
end

function request()
  number = number + 1
  wrk.headers["traceparent"] = string.format("00-%032x-%016x-01", number, number)
  wrk.headers["X-Request-Id"] = string.format("%016x", number)
  return wrk.format("GET")
end
