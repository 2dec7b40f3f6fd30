"""Managing a gateway: one function behind each command, admin API call and page of the console.

Its subjects are keys, accounts, usage, limits, policies and the audit log. What the user can
correct is raised as a `problems.Problem`.
"""
