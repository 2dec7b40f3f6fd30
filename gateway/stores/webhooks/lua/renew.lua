-- Renews leases that a courier still holds.
--
-- KEYS: any name in the shard; ARGV: the length of a lease in us, then tokens and their deliveries
-- Returns the deliveries that it holds no longer.

local gone = {}
for number = 2, #ARGV, 2 do
  local token, id = ARGV[number], ARGV[number + 1]
  if redis.call('HGET', shard .. 'delivery:' .. id, 'token') == token then
    redis.call('ZADD', shard .. 'leases', text(now + tonumber(ARGV[1])), id)
  else
    gone[#gone + 1] = id
  end
end
return gone
