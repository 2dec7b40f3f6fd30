"""Loads for a gateway on this machine: each is bounded in count and time, and keeps to loopback."""
