"""The audit log: changes by administrators, as a chain of hashes."""
