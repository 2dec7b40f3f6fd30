-- Deliveries of a list, the newest first.
--
-- KEYS: any name in the shard
-- ARGV: the list, the bound of when they were added to it, how many to look at, how many to return,
--       their states (none: all)
-- Returns where to go on, or -1 at the end; and for each: id, state, reason, when it was made, when
-- it ended, its attempts.

local list, number, most = shard .. ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local states, any = {}, #ARGV == 4
for i = 5, #ARGV do states[ARGV[i]] = true end
local looked = redis.call('ZREVRANGEBYSCORE', list, ARGV[2], '-inf', 'WITHSCORES',
  'LIMIT', 0, number)
local found, bytes = {}, 0
for i = 1, #looked, 2 do
  local its = redis.call('HMGET', shard .. 'delivery:' .. looked[i], 'state', 'reason', 'at',
    'ended', 'log')
  if its[1] and (any or states[its[1]]) then
    found[#found + 1] = {looked[i], its[1], its[2] or '', its[3] or '0', its[4] or '0',
      its[5] or ''}
    bytes = bytes + #(its[5] or '')
  end
  if #found >= most or bytes >= MOST_REPLY then return {looked[i + 1], found} end
end
return {#looked == 2 * number and looked[#looked] or '-1', found}
