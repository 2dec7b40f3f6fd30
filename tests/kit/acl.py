"""The Redis commands that the gateway and its commands need, and no others."""

from __future__ import annotations

COMMANDS = (
    *("ping", "select", "info", "client|tracking"),
    *("script|load", "eval", "evalsha", "time", "type"),
    *("get", "getrange", "mget", "set", "del", "unlink", "pexpire", "hset", "hmget", "sadd"),
    *("sscan", "zadd", "zrem", "zcount", "zrange", "zrevrange", "zrangebyscore"),
    *("zremrangebyscore", "zrevrank", "zcard", "zincrby", "zremrangebyrank", "expireat", "incr"),
    *("append", "strlen", "srem", "setrange", "xadd", "xrange", "xrevrange", "xtrim", "rename"),
)
#: The further ones for a cluster.
IN_A_CLUSTER = ("cluster|slots", "command", "asking")
RULES = ("resetchannels", "~gw:*", *(f"+{name}" for name in COMMANDS))
#: The further ones for webhooks, and the channels by which couriers hear that something is due.
FOR_WEBHOOKS = (
    *("exists", "hget", "hgetall", "hincrby", "hlen", "hdel", "hexists", "hsetnx", "smembers"),
    *("zscore", "zrevrangebyscore", "incrby", "decrby", "publish", "subscribe"),
)
WEBHOOK_RULES = ("&gw:*", *(f"+{name}" for name in FOR_WEBHOOKS))
