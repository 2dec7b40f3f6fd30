"""Adapters of `domain/ports.py`: what the gateway keeps, in Redis or in process."""
