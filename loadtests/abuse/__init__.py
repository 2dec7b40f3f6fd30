"""Slow clients by the thousand, and a healthy one to see what they do to it."""
