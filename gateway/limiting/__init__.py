"""Limiters without a store: in process, the cache of refusals, the fallback in an outage."""
