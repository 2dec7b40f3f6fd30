"""Finds the shipped policies: beside the package in a checkout, else where they were installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import click

import gateway

DISTRIBUTION: Final = "rate-limiting-gateway"
#: The end of the folder's path, wherever the installer puts shared files.
_INSTALLED: Final = ("share", DISTRIBUTION, "policies")


def find_policies() -> Path:
    """The folder of the shipped policies. Raises ClickException if this installation lacks them."""
    beside = Path(gateway.__file__).resolve().parent.parent / "policies"
    for folder in (beside, _installed()):
        if folder is not None and any(folder.glob("*.yaml")):
            return folder
    raise click.ClickException(
        "this installation lacks the shipped policies: install the package with pip; for the demo, "
        "a folder can be named with --policies"
    )


def _installed() -> Path | None:
    """The folder, by the list of files of the installed package; None: it has none."""
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.suffix == ".yaml" and file.parent.parts[-3:] == _INSTALLED:
            return Path(str(file.locate())).resolve().parent
    return None
