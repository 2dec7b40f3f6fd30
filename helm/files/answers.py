"""Checks the statuses of addresses: URL STATUS URL STATUS …

The program of the pod of `helm test`; it needs Python only.
"""

from __future__ import annotations

import ssl
import sys
import time
import urllib.error
import urllib.request

#: Attempts for one that cannot be reached, a second apart: its pods may be starting.
TRIES = 15


def main(arguments: list[str]) -> int:
    """Return 0 if every answer is the expected one."""
    wanted = zip(arguments[::2], arguments[1::2], strict=True)
    answers = [is_answered(url, int(status)) for url, status in wanted]
    return int(not all(answers))


def is_answered(url: str, wanted: int) -> bool:
    """Does the address answer with this status? Prints the answer."""
    found = ""
    for _ in range(TRIES):
        try:
            found = str(status_of(url))
            break
        except OSError as error:
            found = str(error)
            time.sleep(1)
    is_right = found == str(wanted)
    print("ok  " if is_right else "FAIL", url, found, "" if is_right else f"(expected {wanted})")
    return is_right


def status_of(url: str) -> int:
    """Return the status of a GET. The chart gives the addresses, so all are HTTP."""
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
