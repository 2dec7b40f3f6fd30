"""What the gateway reports: metrics, usage, limit warnings, and its logs."""
