"""A program for any Python: imports all of the client library, in the folder of its argument.

In place of httpx, which this Python may lack, it gives them classes of the same names.
"""

import importlib
import pkgutil
import sys
import types


class Anything(Exception):
    """In place of a class of httpx: it is inherited from, and takes any arguments."""

    def __init__(self, *_args: object, **_named: object) -> None:
        pass


class Httpx(types.ModuleType):
    """In place of httpx: it has a class of every name."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Anything,), {})


sys.modules["httpx"] = Httpx("httpx")
sys.path.insert(0, sys.argv[1])
library = importlib.import_module("gateway_client")
for found in pkgutil.walk_packages(library.__path__, "gateway_client."):
    importlib.import_module(found.name)
for name in library.__all__:
    getattr(library, name)
