"""How many descriptors this process may have: sockets, files and pipes."""

from __future__ import annotations

import contextlib
import resource
import sys


def raise_limit() -> int:
    """Raise the soft limit to the hard one, which takes no rights; what it is then.

    The soft limit is often 1,024, for the sake of programs that call select().
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS calls its hard limit infinite, and then takes only less.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
