"""Limits in Redis: decisions by one script, leases, and the workers that share the limits."""
