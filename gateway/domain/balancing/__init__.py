"""Rules of load balancing: a module each, and their table in `rules.py`."""
