"""What a large fleet needs of Redis, computed from what single things cost."""
