"""The entry point of `python -m gateway` and of the installed command `gateway`."""

from __future__ import annotations

from gateway.cli.main import run


def main() -> None:
    """Run the command line and end the process with its exit status."""
    raise SystemExit(run())


if __name__ == "__main__":
    main()
