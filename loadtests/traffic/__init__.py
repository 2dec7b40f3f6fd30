"""Traffic of many clients; every answer is checked against the policies."""
