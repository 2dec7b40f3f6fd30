"""The console: what the admin API does, as pages for people.

Each module of pages has the handlers of one subject; `routes` puts them at their paths, `gate` says
who may see them, `render` makes HTML of a template. Pages are whole without scripts.
"""
