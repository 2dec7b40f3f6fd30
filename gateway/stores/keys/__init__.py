"""Keys and accounts: their records, the store that changes them, and a worker's cache."""
