"""What people do with a gateway: keys, accounts, usage, limits, policies, audit.

One function behind each command, call of the admin API and page of the console. What goes wrong for
reasons that the asker can do something about is a `problems.Problem`.
"""
