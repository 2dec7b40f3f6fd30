"""Limits in Redis: decisions by one script, leases, and which workers share the limits."""
