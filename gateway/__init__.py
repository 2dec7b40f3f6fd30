"""A rate-limiting gateway for HTTP APIs: a reverse proxy with API keys and limits in Redis."""
