"""What clients of a gateway feel of a store that fails."""
