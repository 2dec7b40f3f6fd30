"""The JSON Schema of lists of addresses."""

from __future__ import annotations

from gateway.policies.schema_parts import Schema, addresses, object_of, path


def access(description: str) -> Schema:
    """One list."""
    in_file = "A text file with an address or CIDR range on each line, comments after '#'; "
    return {
        **object_of(
            {
                "allow": addresses("Only these addresses and CIDR ranges may send requests."),
                "deny": addresses("These may not, even if they are allowed."),
                "allow_file": path(f"{in_file}added to allow.", "office.txt"),
                "deny_file": path(f"{in_file}added to deny.", "blocked.txt"),
            },
            description,
        ),
        "minProperties": 1,
    }
