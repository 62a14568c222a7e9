"""One word, one idea: no two public classes of one name, and nothing public that nobody uses."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "coterie"

# Classes that share their name with another one, and why that has to be.
SHARED = {
    "Family": "each side has its own part of an engine family; the sides do not know each other",
    "ColoursFamily": "as `Family`, for partitioned networks",
    "StackFamily": "as `Family`, for stacks",
    "VsrFamily": "as `Family`, for viewstamped replication",
    "Item": "the fingerprint of a ready-made class, by which states are known, has it by name",
}


class Public(NamedTuple):
    """A public name at the top of a module."""

    name: str
    module: Path
    is_class: bool


@cache
def tree_of(path: Path) -> ast.Module:
    """Read a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def public_names() -> list[Public]:
    """Give all public classes and functions of the package."""
    return [
        Public(node.name, path, isinstance(node, ast.ClassDef))
        for path in sorted(SOURCE.rglob("*.py"))
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
    ]


def test_no_two_public_classes_have_one_name() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for public in public_names():
        if public.is_class:
            homes[public.name].append(str(public.module.relative_to(SOURCE)))
    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert {name: where for name, where in shared.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(shared), "a name that is not shared any more needs no reason"


def words_of(path: Path) -> Counter[str]:
    """Count the words of a file; what a package passes on from its modules is no use of it."""
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py":
        passed_on = [
            node
            for node in tree_of(path).body
            if isinstance(node, ast.ImportFrom)
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        ]
        lines = text.splitlines()
        for node in passed_on:
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[number - 1] = ""
        text = "\n".join(lines)
    return Counter(re.findall(r"\w+", text))


@cache
def words() -> dict[Path, Counter[str]]:
    """Count the words of every file that may use a public name."""
    files = [
        *SOURCE.rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        ROOT / "pyproject.toml",
    ]
    return {path: words_of(path) for path in files if path != Path(__file__)}


@cache
def files_with() -> Counter[str]:
    """Count the files in which each word stands."""
    found = Counter[str]()
    for counted in words().values():
        found.update(counted.keys())
    return found


def test_nothing_public_is_used_by_nobody() -> None:
    unused = {
        f"{public.module.relative_to(SOURCE)}: {public.name}"
        for public in public_names()
        # Once is where it is defined; a second time its own module uses it.
        if words()[public.module][public.name] <= 1 and files_with()[public.name] <= 1
    }
    assert unused == set()


def test_packages_offer_nothing_that_nobody_takes() -> None:
    unused = set()
    for path in SOURCE.rglob("__init__.py"):
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                offered = ast.literal_eval(node.value)
                unused |= {
                    f"{path.parent.relative_to(SOURCE)}: {name}"
                    for name in offered
                    if files_with()[name] <= 1
                }
    assert unused == set()
