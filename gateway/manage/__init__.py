"""Managing a gateway: one function behind each command, admin API call and page of the console.

It manages keys, accounts, usage, limits, policies and the audit log. Errors that the user can
correct are raised as a `problems.Problem`.
"""
