"""The console: the functions of the admin API as web pages.

Each module of pages has the handlers of one subject; `routes` has their paths, `gate` checks
access, `render` makes HTML of a template. Pages work without scripts.
"""
