"""Limiters that need no store: in process, the cache of refusals, the fallback in an outage."""
