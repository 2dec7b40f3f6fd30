"""Measures the cost of a request with this gateway and with others, alternately on one machine."""
