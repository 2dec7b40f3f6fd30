"""Measures how failures of the store affect the clients of a gateway."""
