"""Asks addresses for the statuses they should answer with: URL STATUS URL STATUS …

The program of the pod of `helm test`; it needs nothing but Python.
"""

from __future__ import annotations

import ssl
import sys
import time
import urllib.error
import urllib.request

#: How often one that cannot be reached is asked again, a second apart: its pods may be starting.
TRIES = 15


def main(arguments: list[str]) -> int:
    """0 where every answer is the expected one."""
    wanted = zip(arguments[::2], arguments[1::2], strict=True)
    answers = [is_answered(url, int(status)) for url, status in wanted]
    return int(not all(answers))


def is_answered(url: str, wanted: int) -> bool:
    """Does the address answer so? What it answered is printed."""
    found = ""
    for _ in range(TRIES):
        try:
            found = str(status_of(url))
            break
        except OSError as error:
            found = str(error)
            time.sleep(1)
    right = found == str(wanted)
    print("ok  " if right else "FAIL", url, found, "" if right else f"(expected {wanted})")
    return right


def status_of(url: str) -> int:
    """The status of a GET. The chart names the addresses, so they are of HTTP."""
    context = ssl.create_default_context()
    # Within the cluster the certificate is for the name that clients use, not the service's.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as response:  # noqa: S310
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
