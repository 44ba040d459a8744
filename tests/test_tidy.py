"""The shape of the package: who imports whom, what touches the outside, how long things are, what is documented."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "agentsession_cas"
MODULES: Final = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

RANKS: Final = {
    "errors": 0,
    "core": 1,
    "entry": 2,
    "effects": 2,
    "environment": 3,
    "objects": 3,
    "sessions": 4,
    "layout": 5,
    "maintenance": 6,
    "exchange": 6,
    "store": 7,
    "aio": 8,
    "history": 9,
    "ledger": 9,
    "cli": 10,
    "testing": 10,
    "__main__": 11,
    "__init__": 11,
}
"""The ranks of the architecture. A part imports from lower ranks and from itself; ``testing`` is imported by none."""

AMBIENT: Final = {"fcntl", "os", "random", "secrets", "shutil", "socket", "tempfile", "time"}
OUTSIDE: Final = AMBIENT | {"io", "mmap", "pathlib", "subprocess"}
"""What core may not import on top: it does no I/O."""
ASKS_THE_CLOCK: Final = {"now", "utcnow", "today", "uuid1", "uuid4"}

LINES_MAX: Final = 450
FUNCTION_LINES_MAX: Final = 65
TABLES: Final = {"errors.py"}
"""Modules that are one flat list, and as long as it is."""


def _tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / module).read_bytes(), module)


def _part(module: str) -> str:
    return module.split("/")[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Every import, wherever it stands: the module, and the name taken from it ("" for the module itself)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((str(node.module), alias.name) for alias in node.names)


def _own_parts(tree: ast.AST) -> set[str]:
    """The parts of this package that a module imports from."""
    parts = set()
    for module, name in _imports(tree):
        package, _, inside = module.partition(".")
        if package == PACKAGE.name:
            inside = inside or name
            parts.add("" if inside == "__version__" else inside.split(".")[0])
    return parts - {""}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_the_ranks(module: str) -> None:
    """A part imports only from lower ranks and its own part; production never imports ``testing``."""
    part = _part(module)
    for other in _own_parts(_tree(module)):
        assert other in RANKS, f"{module} imports {other}, which has no rank"
        assert other == part or RANKS[other] < RANKS[part], f"{module} imports {other}"
        assert other != "testing" or part == "testing", f"{module} imports testing"


def test_every_part_has_a_rank() -> None:
    """A new part is given its place first."""
    assert {_part(module) for module in MODULES} <= set(RANKS)


@pytest.mark.parametrize("module", MODULES)
def test_the_outside_has_one_door(module: str) -> None:
    """Only effects/host and cli import what reaches outside; core does no I/O, and only cli prints."""
    tree = _tree(module)
    imported = {name.split(".")[0] for name, _ in _imports(tree)}
    part = _part(module)
    if module != "effects/host.py" and part not in ("cli", "testing"):
        assert not imported & AMBIENT
    if part in ("core", "entry", "errors"):
        assert not imported & OUTSIDE
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name):
            assert node.func.id != "print" or part == "cli", f"{module}:{node.lineno} prints"
            assert node.func.id not in ("open", "input") or part == "cli", f"{module}:{node.lineno} opens a file"
        elif isinstance(node.func, ast.Attribute) and part not in ("cli", "testing"):
            assert node.func.attr not in ASKS_THE_CLOCK, f"{module}:{node.lineno} asks the clock"


@pytest.mark.parametrize("module", MODULES)
def test_modules_and_functions_are_short(module: str) -> None:
    """A module is one thing, a function fits a screen."""
    length = len((PACKAGE / module).read_text().splitlines())
    assert length <= LINES_MAX or module in TABLES, f"{module} has {length} lines"
    for node in ast.walk(_tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{module}: {node.name} has {lines} lines"


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_they_are(module: str) -> None:
    """A docstring for the module and for every public class, function and method; an ``__all__`` that holds."""
    tree = _tree(module)
    assert ast.get_docstring(tree), f"{module} has no docstring"
    if len(tree.body) == 1:
        return
    for name, node in _public(tree):
        assert ast.get_docstring(node), f"{module}: {name} has no docstring"
    exported = [_names(node) for node in tree.body if _target(node) == "__all__"]
    assert len(exported) == 1, f"{module} has no __all__"
    known = _defined(tree)
    assert set(exported[0]) <= known or module == "__init__.py", f"{module}: {sorted(set(exported[0]) - known)}"
    assert len(exported[0]) == len(set(exported[0]))


def _public(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    pending: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    while pending:
        within, node = pending.pop()
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name.startswith("_"):
            continue
        name = f"{within}{node.name}"
        yield name, node
        if isinstance(node, ast.ClassDef):
            pending += [(f"{name}.", each) for each in node.body]


def _target(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


def _names(node: ast.stmt) -> list[str]:
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    assert isinstance(value, ast.List)
    return [str(each.value) for each in value.elts if isinstance(each, ast.Constant)]


def _defined(tree: ast.Module) -> set[str]:
    names = {_target(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in node.names)
    return names


def test_public_names_load() -> None:
    """Each name of the package is where it says, and an unknown one is an AttributeError."""
    import agentsession_cas

    for name in agentsession_cas.__all__:
        assert getattr(agentsession_cas, name) is not None
    with pytest.raises(AttributeError):
        _ = agentsession_cas.nonsense


def test_what_is_imported_is_declared() -> None:
    """Nothing is there by luck: every package imported is Python's, ours, or a dependency."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {each.split(">")[0] for each in declared} | sys.stdlib_module_names | {PACKAGE.name}
    imported = {name.split(".")[0] for module in MODULES for name, _ in _imports(_tree(module))}
    assert imported <= names
