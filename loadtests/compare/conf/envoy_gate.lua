-- The keys lie in a table that each of Envoy's workers loads at its start.
-- KEY -> {id, plan, environment, expires, scope, networks}; a network is {first, last}.
local keys = dofile("@folder@/keys.lua")

local function number_of(address)
  local a, b, c, d = string.match(address, "^(%d+)%.(%d+)%.(%d+)%.(%d+)")
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function refuse(handle, status, body)
  handle:respond({[":status"] = status, ["content-type"] = "application/json",
    ["www-authenticate"] = status == "401" and "Bearer" or nil}, body)
end

function envoy_on_request(handle)
  local headers = handle:headers()
  local shown = headers:get("authorization")
  local record = shown and keys[string.match(shown, "^Bearer (%S+)$")]
  if not record then
    return refuse(handle, "401", '{"error":"unauthorized","code":"INVALID_API_KEY"}')
  end
@if all log
  if record.environment ~= "production" or os.time() >= record.expires then
    return refuse(handle, "401", '{"error":"unauthorized","code":"INVALID_API_KEY"}')
  end
  local address = number_of(handle:streamInfo():downstreamDirectRemoteAddress())
  local within = #record.networks == 0
  for _, network in ipairs(record.networks) do
    if address >= network[1] and address <= network[2] then
      within = true
      break
    end
  end
  if not within then
    return refuse(handle, "403", '{"error":"forbidden","code":"IP_NOT_ALLOWED"}')
  end
  if record.scope ~= "@scope@" then
    return refuse(handle, "403", '{"error":"forbidden","code":"INSUFFICIENT_SCOPE"}')
  end
@end
@if process all log
  headers:replace("x-plan", record.plan)
  headers:replace("x-key-id", record.id)
@end
end
