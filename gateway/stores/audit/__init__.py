"""The audit log: what people changed, as a chain of hashes."""
