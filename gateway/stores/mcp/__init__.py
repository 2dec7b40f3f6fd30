"""Which keys have MCP connections open, as workers report it."""
