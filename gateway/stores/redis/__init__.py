"""Connections to Redis, Sentinel and Cluster, the embedded server, and the state of the store."""
