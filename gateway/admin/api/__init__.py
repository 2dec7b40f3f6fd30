"""The admin API, /admin/v1: one table of operations, which gives the routes and the document."""
