"""Measures what a request costs with this gateway and with others, alternately on one machine."""
