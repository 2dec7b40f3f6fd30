"""What the gateway reports of itself: metrics, usage, limit warnings, and its logs."""
