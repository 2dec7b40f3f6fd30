"""All regular expressions of the packages, and how the code uses each: found in the source.

A call of `re` is evaluated in the namespace of its module, so that what is checked is what runs.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Final

import gateway_client

import gateway

PACKAGES: Final = (gateway, gateway_client)
#: What a pattern can be asked.
METHODS: Final = ("match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn")
#: Where a call of `re` has its flags, if they have no name.
_FLAGS_AT: Final = {"compile": 1, "split": 3, "sub": 4, "subn": 4}


@dataclass(frozen=True)
class Use:
    """A call of `re` in the source.

    where:   "gateway.http1.paths: _PLAIN", with the names of the functions and values it is within
    pattern: None: it depends on what the code is given
    methods: what the pattern is asked; empty: the source does not show it
    """

    where: str
    pattern: re.Pattern[Any] | None
    methods: frozenset[str]


def asking(pattern: re.Pattern[Any], method: str) -> Callable[[Any], object]:
    """Asks a pattern about a text, to the end."""
    if method in ("sub", "subn"):
        return lambda text: getattr(pattern, method)(text[:0], text)
    if method == "finditer":
        return lambda text: list(pattern.finditer(text))
    found: Callable[[Any], object] = getattr(pattern, method)
    return found


@cache
def modules() -> tuple[ModuleType, ...]:
    """All modules of the packages, but for those that run when they are imported."""
    return tuple(
        importlib.import_module(name)
        for package in PACKAGES
        for name in (
            package.__name__,
            *(
                each.name
                for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
            ),
        )
        if not name.endswith("__main__")
    )


@cache
def tree_of(module: ModuleType) -> ast.Module:
    """The source of a module."""
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        return ast.parse(file.read())


def uses() -> list[Use]:
    """All calls of `re`."""
    return [
        _use(module, names, parent, call)
        for module in modules()
        for names, parent, call in _calls(tree_of(module), (), None)
    ]


def arguments(function: str, at: int = 0) -> list[re.Pattern[Any]]:
    """The patterns that calls of a function have as an argument, where it is a constant."""
    found = []
    for module in modules():
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Call) and _name(node.func) == function and len(node.args) > at:
                value = _evaluated(node.args[at], module)
                if isinstance(value, str):
                    found.append(re.compile(value))
    return found


def _use(module: ModuleType, names: tuple[str, ...], parent: ast.AST | None, call: ast.Call) -> Use:
    function = _name(call.func)
    if function != "compile":
        methods = frozenset({function})
    elif isinstance(parent, ast.Attribute):
        methods = frozenset({parent.attr})
    else:
        methods = _asked(module, names[-1] if names else "")
    return Use(f"{module.__name__}: {'.'.join(names)}", _pattern(call, function, module), methods)


def _calls(
    node: ast.AST, names: tuple[str, ...], parent: ast.AST | None
) -> Iterator[tuple[tuple[str, ...], ast.AST | None, ast.Call]]:
    """The calls of `re` below a node: the names that they are within, their parents, themselves."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names = (*names, node.name)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        names = (*names, ast.unparse(target).removeprefix("self."))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if is_of_re and node.func.attr in ("compile", *METHODS):
            yield names, parent, node
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, names, node)


def _asked(module: ModuleType, name: str) -> frozenset[str]:
    """What the pattern with this name is asked, there and where it is imported."""
    pattern = vars(module).get(name)
    return frozenset(
        method
        for other in modules()
        for method in _methods(other).get(name, ())
        if other is module or (pattern is not None and vars(other).get(name) is pattern)
    )


@cache
def _methods(module: ModuleType) -> dict[str, set[str]]:
    """Methods of patterns that are called, or passed on, by the names that they are called on."""
    found = defaultdict[str, set[str]](set)
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found[_name(node.value)].add(node.attr)
    return found


def _name(node: ast.expr) -> str:
    """The last name of what is called."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _pattern(call: ast.Call, function: str, module: ModuleType) -> re.Pattern[Any] | None:
    at = _FLAGS_AT.get(function, 2)
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    flags = named.get("flags") or (call.args[at] if len(call.args) > at else ast.Constant(0))
    pattern = _evaluated(call.args[0], module)
    return None if pattern is None else re.compile(pattern, _evaluated(flags, module))


def _evaluated(node: ast.expr, module: ModuleType) -> Any:
    """The value of an expression; None: it has names that a module does not have."""
    expression = ast.fix_missing_locations(ast.Expression(node))
    try:
        # It is an expression of our own source.
        return eval(compile(expression, module.__name__, "eval"), dict(vars(module)))
    except NameError:
        return None
