"""What the gateway tells about itself: metrics, the access log, its own log."""
