-- What an experienced operator writes for nginx: keys and counts in Redis.
--
-- A key's record is a hash in Redis, apikey:ID, with the SHA-256 of the key in it. Each worker
-- remembers what it found, refused keys as well, for one second: a revoked key ends within the
-- second that the gateway promises, too. lrucache keeps Lua tables, which a shared dictionary
-- would have to decode for each request. One EVALSHA a request decides and counts.

local ffi = require "ffi"
local bit = require "bit"
local redis = require "nginx.redis"
local lrucache = require "resty.lrucache"

ffi.cdef "unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md);"

local _M = {}
local config, sha1
local remembered = assert(lrucache.new(200000))
local REMEMBER_S = 1
local KEEP_MS, POOL = 60000, 512

local find, match, gmatch, byte = string.find, string.match, string.gmatch, string.byte
local band, lshift, bor = bit.band, bit.lshift, bit.bor
local tohex = function(text)
  return (text:gsub(".", function(c) return ("%02x"):format(byte(c)) end))
end

function _M.configure(given)
  config = given
  local file = assert(io.open(given.script))
  config.source = file:read("*a")
  file:close()
  sha1 = tohex(ngx.sha1_bin(config.source))
end

local function connect()
  local store = redis:new()
  store:set_timeout(1000)
  local ok, err = store:connect("127.0.0.1", config.port)
  if not ok then
    ngx.log(ngx.ERR, "redis: ", err)
    ngx.exit(503)
  end
  return store
end

local function sha256(text)
  local digest = ffi.new("unsigned char[32]")
  ffi.C.SHA256(text, #text, digest)
  return tohex(ffi.string(digest, 32))
end

local function number_of(a, b, c, d)
  return bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function parse_networks(text)
  local networks = {}
  for a, b, c, d, bits in gmatch(text, "(%d+)%.(%d+)%.(%d+)%.(%d+)/(%d+)") do
    bits = tonumber(bits)
    local mask = bits == 0 and 0 or lshift(-1, 32 - bits)
    local base = number_of(tonumber(a), tonumber(b), tonumber(c), tonumber(d))
    networks[#networks + 1] = {band(base, mask), mask}
  end
  return networks
end

-- The record of a key, or false; out of Redis once a second at most.
local function look_up(key)
  local record = remembered:get(key)
  if record ~= nil then return record end
  record = false
  local id = match(key, "^gwk_[%a%d-]+_(%w+)_%w+$")
  if id then
    local store = connect()
    local found = store:hmget("apikey:" .. id, "digest", "environment", "expires", "scopes",
      "networks", "limit", "burst")
    store:set_keepalive(KEEP_MS, POOL)
    if found and found[1] == sha256(key) then
      local scopes = {}
      for scope in gmatch(found[4], "%S+") do scopes[scope] = true end
      record = {
        id = id, environment = found[2], expires = tonumber(found[3]), scopes = scopes,
        networks = parse_networks(found[5]), limit = found[6], burst = found[7],
        name = "window:{" .. id .. "}",
      }
    end
  end
  remembered:set(key, record, REMEMBER_S)
  return record
end

local function refuse(status, body)
  ngx.status = status
  ngx.header["Content-Type"] = "application/json"
  ngx.print(body)
  return ngx.exit(ngx.HTTP_OK)
end

local function unauthorized()
  ngx.header["WWW-Authenticate"] = "Bearer"
  return refuse(401, '{"error":"unauthorized","message":"Send a valid key.","code":"INVALID_API_KEY"}')
end

local function is_within(networks)
  if #networks == 0 then return true end
  local address = ngx.var.binary_remote_addr
  local number = number_of(byte(address, 1, 4))
  for i = 1, #networks do
    local network = networks[i]
    if band(number, network[2]) == network[1] then return true end
  end
  return false
end

local function decide(record)
  local store = connect()
  local reply, err = store:evalsha(sha1, 1, record.name, record.limit, record.burst, 60000000)
  if not reply and err and find(err, "NOSCRIPT", 1, true) then
    reply, err = store:eval(config.source, 1, record.name, record.limit, record.burst, 60000000)
  end
  if not reply then
    ngx.log(ngx.ERR, "redis: ", err)
    return ngx.exit(503)
  end
  store:set_keepalive(KEEP_MS, POOL)
  return reply
end

local function limit(record)
  local reply = decide(record)
  local headers = ngx.header
  headers["X-RateLimit-Limit"] = record.limit
  headers["X-RateLimit-Remaining"] = reply[2]
  headers["X-RateLimit-Reset-After"] = reply[3]
  headers["X-RateLimit-Reset"] = reply[4]
  if reply[1] == 0 then
    headers["Retry-After"] = reply[5]
    return refuse(429, '{"error":{"code":"rate_limit_exceeded","retry_after":' .. reply[5] .. "}}")
  end
end

function _M.access()
  local shown = ngx.var.http_authorization
  local key = shown and match(shown, "^Bearer (%S+)$")
  local record = key and look_up(key)
  if not record then return unauthorized() end
  local layer = config.layer
  if layer == "all" or layer == "log" then
    if record.environment ~= config.environment or ngx.time() >= record.expires then
      return unauthorized()
    end
    if not is_within(record.networks) then
      return refuse(403, '{"error":"forbidden","code":"IP_NOT_ALLOWED"}')
    end
    if not record.scopes[config.scope] then
      return refuse(403, '{"error":"forbidden","code":"INSUFFICIENT_SCOPE"}')
    end
    if layer == "log" then ngx.var.key_id = record.id end
  end
  if layer ~= "key" and layer ~= "process" then return limit(record) end
end

local BUCKETS = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5}

-- A counter by status and a histogram of durations, shared by the workers.
function _M.count()
  local metrics = ngx.shared.metrics
  metrics:incr(ngx.status, 1, 0)
  local took, bucket = tonumber(ngx.var.request_time), "inf"
  for i = 1, #BUCKETS do
    if took <= BUCKETS[i] then
      bucket = BUCKETS[i]
      break
    end
  end
  metrics:incr("le " .. bucket, 1, 0)
end

function _M.metrics()
  local metrics = ngx.shared.metrics
  for _, name in ipairs(metrics:get_keys(0)) do ngx.say(name, " ", metrics:get(name)) end
end

return _M
