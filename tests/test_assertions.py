"""Each test asserts something, whatever happens.

A test whose assertions are all under an `if`, after a possible `return`, or in a loop over what may
be empty, passes also where it tests nothing. So on each path through a test there is an assertion,
or a call of a function of the tests that has one on each path. A property may say instead how many
of its examples reach its assertions: see `tests/kit/reach.py`.

Only the syntax is read: methods are known by their names, and a CONSTANT is taken for not empty.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.kit.rows import each_row

TESTS: Final = Path(__file__).parent

#: Functions of others, and methods, that fail if something is not as it should be.
ASSERTING: Final = {
    *("raises", "warns", "fail"),  # of pytest
    *("check_schema", "validate"),  # of libraries for schemas
    *("timeout", "wait_for", "eventually"),  # what is awaited happens
    # Methods of the tests' kit, and what its fixtures give.
    *("become", "call", "check_workload", "holds", "read_end", "rests", "until_shown"),
}
#: Tests that nothing is raised, where there is nothing else to be seen.
RAISING_NOTHING: Final = {
    "bench/test_hot.py::test_case_runs",
    "proxy/test_connections.py::test_giving_memory_back",
    "test_files.py::test_a_missing_path_is_ones_own",
}
#: Functions and methods whose results have elements if what they are given has some.
SAME_LENGTH: Final = {"enumerate", "list", "reversed", "set", "sorted", "tuple"}
SAME_LENGTH_METHODS: Final = {"items", "keys", "values"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A module of tests.

    functions: its own, by name
    imported:  where others are that it can call, by the name that they have here
    """

    def __init__(self, source: str) -> None:
        self.functions: dict[str, Function] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        self._tests: list[Function] = []
        self._known: dict[str, bool] = {}
        for node in ast.parse(source).body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (node.module or "", alias.name)
            for each in node.body if isinstance(node, ast.ClassDef) else [node]:
                if isinstance(each, Function) and each.name.startswith("test_"):
                    self._tests.append(each)
                elif isinstance(each, Function) and each is node:
                    self.functions[each.name] = each

    def asserts(self, name: str) -> bool:
        """Does a function that it can call come to an assertion, whatever happens?"""
        if name in self._known:
            return self._known[name]
        self._known[name] = False  # while it is being read, as a function may call itself
        if name in self.functions:
            self._known[name] = Paths(self).assert_in(self.functions[name].body)
        elif name in self.imported:
            home, original = self.imported[name]
            path = TESTS.parent / f"{home.replace('.', '/')}.py"
            if home.startswith("tests.") and path.is_file():
                self._known[name] = module_at(path).asserts(original)
        return self._known[name]

    def unasserting(self) -> Iterator[str]:
        """The tests that may assert nothing."""
        for test in self._tests:
            if not (says_its_reach(test) or Paths(self).assert_in(test.body)):
                yield test.name


class Paths:
    """The paths through a function of a module: is there an assertion on each?"""

    def __init__(self, module: Module) -> None:
        self._module = module
        #: The functions within it that assert, and its variables with elements, as far as read.
        self._asserting: set[str] = set()
        self._filled: set[str] = set()

    def assert_in(self, statements: list[ast.stmt]) -> bool:
        """Is there an assertion on each path through these statements?"""
        if not statements:
            return False
        first, rest = statements[0], statements[1:]
        match first:
            case ast.Assert() | ast.Raise():
                return True
            case ast.Return() | ast.Continue() | ast.Break():
                return self._calls(first)
            case ast.If(test, body, others):
                return self._calls(test) or self._all([body, others], rest)
            case ast.Match(subject, cases):
                return self._calls(subject) or self._all([[], *(one.body for one in cases)], rest)
            case ast.Try(body, handlers, others, last):
                branches = [[*body, *others], *(handler.body for handler in handlers)]
                return self._all(branches, [*last, *rest])
            case ast.With(items, body) | ast.AsyncWith(items, body):
                return any(map(self._calls, items)) or self.assert_in([*body, *rest])
            case ast.For(_, of, body) | ast.AsyncFor(_, of, body):
                if self._calls(of) or (self._is_filled(of) and self.assert_in(body)):
                    return True
                return not may_return(first) and self.assert_in(rest)
            case ast.While(test, body):
                is_endless = isinstance(test, ast.Constant)
                if self._calls(test) or (is_endless and self.assert_in(body)):
                    return True
                return not may_return(first) and self.assert_in(rest)
            case ast.FunctionDef(name, _, body) | ast.AsyncFunctionDef(name, _, body):
                if self.assert_in(body):
                    self._asserting.add(name)
                return self.assert_in(rest)
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                if value is not None and self._is_filled(value):
                    self._filled.add(name)
        return self._calls(first) or self.assert_in(rest)

    def _all(self, branches: list[list[ast.stmt]], rest: list[ast.stmt]) -> bool:
        return all(self.assert_in([*branch, *rest]) for branch in branches)

    def _calls(self, node: ast.AST) -> bool:
        """Is a function called that asserts, or given to another one to be called?"""
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            for each in (call.func, *call.args, *(keyword.value for keyword in call.keywords)):
                if isinstance(each, ast.Name) and self._is_asserting(each.id):
                    return True
            if isinstance(call.func, ast.Attribute) and call.func.attr in ASSERTING:
                return True
        return False

    def _is_asserting(self, name: str) -> bool:
        return name in ASSERTING or name in self._asserting or self._module.asserts(name)

    def _is_filled(self, node: ast.expr) -> bool:
        """Has a value elements, whatever happens?"""
        match node:
            case ast.Tuple(each) | ast.List(each) | ast.Set(each):
                starred = [one.value for one in each if isinstance(one, ast.Starred)]
                return len(starred) < len(each) or any(map(self._is_filled, starred))
            case ast.Dict(keys):
                return any(keys)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return all(not one.ifs and self._is_filled(one.iter) for one in node.generators)
            case ast.Name(name):
                return name.isupper() or name in self._filled
            case ast.Attribute(_, name):
                return name.isupper()
            case ast.Subscript(value, ast.Slice()):
                return self._is_filled(value)
            case ast.BinOp(left, _, right):
                return self._is_filled(left) or self._is_filled(right)
            case ast.Call(ast.Name("range")):
                return True  # its end is written, or a length
            case ast.Call(ast.Name("map"), [_, *arguments]):
                return all(map(self._is_filled, arguments))
            case ast.Call(ast.Name("zip"), arguments, [ast.keyword("strict")]):
                return any(map(self._is_filled, arguments))
            case ast.Call(ast.Name("product"), arguments):
                return all(map(self._is_filled, arguments))
            case ast.Call(ast.Name(name), [argument, *_]) if name in SAME_LENGTH:
                return self._is_filled(argument)
            case ast.Call(ast.Attribute(value, name)) if name in SAME_LENGTH_METHODS:
                return self._is_filled(value)
        return False


def may_return(loop: ast.AST) -> bool:
    """Can a loop leave its function?"""
    if isinstance(loop, Function | ast.Lambda):
        return False
    return isinstance(loop, ast.Return) or any(map(may_return, ast.iter_child_nodes(loop)))


def says_its_reach(test: Function) -> bool:
    """Does a property count the examples that reach its assertions, above all that makes them?"""
    names = [ast.unparse(each).partition("(")[0] for each in test.decorator_list]
    of_properties = [each for each in names if each in {"reaches", "given", "settings", "example"}]
    return of_properties[:1] == ["reaches"] and any(
        isinstance(each, ast.Call) and ast.unparse(each.func) == "reached"
        for each in ast.walk(test)
    )


@functools.cache
def module_at(path: Path) -> Module:
    """A module of which others call functions."""
    return Module(path.read_text("utf-8"))


def test_each_test_asserts_something() -> None:
    """Each test may fail, on each path through it; those that only raise nothing are listed."""
    found = {
        f"{path.relative_to(TESTS)}::{name}"
        for path in (*TESTS.rglob("test_*.py"), *TESTS.glob("suites/*.py"))
        for name in Module(path.read_text("utf-8")).unasserting()
    }
    faults = [f"{each}: may end without an assertion" for each in found - RAISING_NOTHING]
    faults += [f"{each}: has one, or is no more" for each in RAISING_NOTHING - found]
    assert not faults, "\n".join(["tests without assertions:", *sorted(faults)])


HEAD = """
from tests.kit.eventually import eventually
from tests.test_assertions import module_at as nothing


def checks(it): assert it
def hardly(it):
    if it: assert it
"""


@each_row(
    ("body", "asserts"),
    [
        ("assert x", True),
        ("pass", False),
        ("nothing(x)", False),
        # Branches.
        ("if x: assert x", False),
        ("if x: assert x\nelse: assert y", True),
        ("if x: return\nassert x", False),
        ("if x:\n assert y\n return\nassert x", True),
        ("if x: pytest.skip()\nassert x", True),
        ("if x: raise ValueError\nassert x", True),
        ("match x:\n case 1: assert x", False),
        ("match x:\n case 1: pass\nassert x", True),
        ("try: f()\nexcept E: return\nassert x", False),
        ("try: f()\nexcept E: pass\nassert x", True),
        ("try: assert x\nfinally: f()", True),
        # Loops.
        ("for x in f(): assert x", False),
        ("for x in (1, *f()): assert x", True),
        ("for x in [*f()]: assert x", False),
        ("for x in {**f()}.items(): assert x", False),
        ("for x in {1: 2, **f()}.items(): assert x", True),
        ("for x in CASES[:3]: assert x", True),
        ("for x in range(y): assert x", True),
        ("for x, y in zip((1, 2), f()): assert x", False),
        ("for x, y in zip((1, 2), f(), strict=True): assert x", True),
        ("for x, y in product((1, 2), f()): assert x", False),
        ("for x in [f(y) for y in CASES]: assert x", True),
        ("for x in [f(y) for y in CASES if y]: assert x", False),
        ("xs = [1]\nfor x in xs: assert x", True),
        ("for x in (1, 2):\n if x: continue\n assert x", False),
        ("for x in (1, 2):\n if x: return\nassert x", False),
        ("for x in f():\n if x: continue\nassert x", True),
        ("while x: assert x", False),
        ("while True: assert x", True),
        # What is called.
        ("with pytest.raises(ValueError): f()", True),
        ("with f(): assert x", True),
        ("with f():\n if x: assert x", False),
        ("checks(x)", True),
        ("run(checks)", True),
        ("run(lambda: checks(1))", True),
        ("hardly(x)", False),
        ("y = await eventually(f, 'x')", True),
        ("await bench.become(delivered=1)", True),
        ("def g(): assert x\nrun(g)", True),
        ("def g(): assert x", False),
        ("def g():\n return 1\nassert x", True),
    ],
)
def test_where_there_is_an_assertion(body: str, asserts: bool) -> None:
    """An assertion that may be passed by is none."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    module = Module(f"{HEAD}\nasync def test_x():\n{lines}")
    assert list(module.unasserting()) == ([] if asserts else ["test_x"])


@each_row(
    ("decorators", "reaches"),
    [
        ("@given(x)", False),
        ("@reaches(0.1)\n@given(x)", True),
        ("@pytest.mark.x\n@reaches(0.1)\n@settings(x)\n@given(x)", True),
        ("@settings(x)\n@reaches(0.1)\n@given(x)", False),
    ],
)
def test_a_property_that_says_its_reach(decorators: str, reaches: bool) -> None:
    """It may have its assertions anywhere, if the count is above all that makes examples."""
    text = f"{decorators}\ndef test_x(x):\n if x:\n  reached()\n  assert x"
    assert list(Module(text).unasserting()) == ([] if reaches else ["test_x"])
    assert list(Module(text.replace("reached()", "x()")).unasserting()) == ["test_x"]
