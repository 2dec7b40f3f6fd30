"""Adapters of `domain/ports.py`: the gateway's stored state, in Redis or in process."""
