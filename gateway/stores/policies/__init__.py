"""The history of policies, with their texts."""
