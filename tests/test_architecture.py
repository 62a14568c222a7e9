"""The folders of the package depend on each other in one direction only.

The rules are checked on the text of each module, without importing anything, so an import inside
a function or for the type checker counts like any other.
"""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "coterie"
MAP = Path(__file__).parent.parent / "docs" / "internals" / "architecture.md"

FOUNDATION = {"kernel", "journal"}
LAYERS = FOUNDATION | {"membership", "ordering", "replication", "colours"}

# Which top folders (or top modules, such as stacks.py) each of them may import, besides itself.
ALLOWED: dict[str, set[str]] = {
    "kernel": set(),
    "journal": {"kernel"},
    "membership": FOUNDATION,
    "ordering": FOUNDATION,
    "replication": FOUNDATION,
    "colours": FOUNDATION | {"replication"},
    "vsr": FOUNDATION,
    "llft": FOUNDATION,
    "program": set(),  # loaded into programs of others: as little as can be
    "objects": FOUNDATION,
    "manager": FOUNDATION | {"objects"},  # what it decides; agents and sockets are the service's
    "ready": {"objects"},  # written as users would write them
    "checking": FOUNDATION,
    "transactional": FOUNDATION | {"objects", "vsr"},
    "bypass": LAYERS,
    "stacks": LAYERS | {"bypass"},
    "assembly": LAYERS | {"stacks", "objects"},
    "simulation": LAYERS | {"assembly", "stacks", "checking", "llft", "objects", "ready", "vsr"},
    "runtime": FOUNDATION | {"assembly", "membership", "protocol", "stacks"},
    "demo": LAYERS | {"assembly", "stacks", "objects", "runtime", "client", "service", "pipeline"},
    "local_group": FOUNDATION | {"client", "objects", "runtime", "service", "stacks"},
    "local_transactions": FOUNDATION
    | {"client", "objects", "runtime", "service", "transactional", "vsr"},
    "protocol": FOUNDATION | {"objects"},  # what both ends speak
    "client": FOUNDATION | {"objects", "protocol", "ready", "runtime", "transactional", "vsr"},
    "service": LAYERS
    | {
        "assembly",
        "stacks",
        "objects",
        "runtime",
        "client",
        "manager",
        "protocol",
        "ready",
        "transactional",
        "vsr",
    },
    "agents": FOUNDATION | {"assembly", "llft", "program", "runtime", "service"},
    # Entries are decoded and replayed as replicas do it; nothing of engines, layers or drivers.
    "pipeline": FOUNDATION | {"checking", "objects"},
}
# Seeds of the simulator as tasks of the pipeline.
ALLOWED["campaign"] = FOUNDATION | {"pipeline", "simulation", "stacks"}
ALLOWED["bench"] = set(ALLOWED)
ALLOWED["cli"] = set(ALLOWED)

# What stands here is told the time, given a generator, and asks its driver for everything else.
WITHOUT_IO = {
    *("kernel", "membership", "ordering", "replication", "colours", "vsr", "llft"),
    "manager",
}
IO_MODULES = {
    *("asyncio", "concurrent", "multiprocessing", "queue", "sched", "signal", "threading"),
    *("datetime", "time", "zoneinfo"),
    *("numpy", "random", "secrets", "uuid"),
    *("logging", "syslog", "warnings"),
    *("fileinput", "glob", "io", "mmap", "os", "pathlib", "shutil", "sqlite3", "tempfile"),
    *("ctypes", "fcntl", "importlib", "resource", "subprocess"),
    *("http", "select", "selectors", "socket", "socketserver", "ssl", "urllib", "uvloop"),
}
IO_CALLS = {"__import__", "breakpoint", "input", "open", "print"}

# These run whatever they are given, and what we read comes from a network or a disk.
UNSAFE_MODULES = {"marshal", "pickle", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}


def violations(source: str, path: PurePath) -> list[str]:
    """What is wrong with a module; *path* is its place below the package's folder."""
    folder = path.parts[0].removesuffix(".py")
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.If) and ast.unparse(outer.test).endswith("TYPE_CHECKING")
        for statement in outer.body
        for inner in ast.walk(statement)
    }
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            typed = id(node) in typing_only
            problems = [import_problem(folder, m, for_types=typed) for m in imported(node, path)]
        elif isinstance(node, ast.Call):
            problems = [call_problem(folder, ast.unparse(node.func))]
        else:
            continue
        found += [f"src/coterie/{path}:{node.lineno}: {p}" for p in problems if p]
    return found


def imported(node: ast.Import | ast.ImportFrom, path: PurePath) -> Iterator[str]:
    """The full names of what *node* imports into the module at *path*."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    # In a package's __init__.py one dot means the package itself, in a module its parent: both
    # are the folder of the file.
    place = ["coterie", *path.parent.parts]
    base = place[: len(place) - node.level + 1] if node.level else []
    for alias in node.names:
        yield ".".join([*base, *filter(None, [node.module]), alias.name])


def call_problem(folder: str, function: str) -> str | None:
    """Why a module in *folder* may not call *function*, or nothing if it may."""
    function = function.removeprefix("builtins.")
    if function in UNSAFE_CALLS:
        return f"{function}() is allowed nowhere"
    if function in IO_CALLS and folder in WITHOUT_IO:
        return f"{folder} calls {function}(); input and output are left to the driver"
    return None


def import_problem(folder: str, module: str, *, for_types: bool) -> str | None:
    """Why a module in *folder* may not import *module*, or nothing if it may."""
    top, _, rest = module.partition(".")
    if top in UNSAFE_MODULES:
        return f"imports {top}, which is allowed nowhere"
    if top == "coterie":
        # What is not a folder is a name that the package itself offers, for our users.
        target = rest.partition(".")[0]
        target = target if target in ALLOWED else "the package itself"
        if target == folder or target in ALLOWED[folder] or folder == "cli":
            return None
        allowed = ", ".join(sorted(ALLOWED[folder])) or "no other folder"
        return f"{folder} imports {target} ({module}); allowed: {allowed}"
    if folder in WITHOUT_IO and top in IO_MODULES:
        if module == "random.Random" or (module == "random" and for_types):
            return None
        return (
            f"{folder} imports {module}; time, randomness and input or output are left to the"
            " driver (allowed: random.Random, as a type)"
        )
    return None


def test_imports_point_downwards() -> None:
    found: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place == PurePath("__init__.py"):
            continue  # offers to users what the folders hold, so it may import anything
        if place.parts[0].removesuffix(".py") not in ALLOWED:
            found.append(f"src/coterie/{place}: {place.parts[0]} has no line in ALLOWED; add one")
            continue
        found += violations(path.read_text(encoding="utf-8"), place)
    assert not found, "\n" + "\n".join(found)


def test_the_rules_themselves_have_no_circle() -> None:
    graphlib.TopologicalSorter(ALLOWED).prepare()


def rows_of_the_tree() -> dict[str, str]:
    """Give the row that each folder and each top module should have in the map."""
    packages = [path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE]
    modules = [path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]
    rows = {}
    for path in [*packages, *modules]:
        module = path / "__init__.py" if path.is_dir() else path
        docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        name = f"{path.relative_to(PACKAGE)}{'/' if path.is_dir() else ''}"
        rows[name] = f"| `{name}` | {docstring.partition(chr(10))[0]} |"
    return rows


def rows_of_the_map() -> dict[str, str]:
    """Give the rows of the map in the page on architecture, by what they are about, in order."""
    text = MAP.read_text(encoding="utf-8").partition("## The folders")[2].partition("\n## ")[0]
    return {row[1]: row[0] for row in re.finditer(r"(?m)^\| `([\w/.]+)` \|.*$", text)}


def test_the_map_is_the_tree() -> None:
    tree, shown = rows_of_the_tree(), rows_of_the_map()
    missing = [row for name, row in tree.items() if shown.get(name) != row]
    assert not missing, f"rows for {MAP.name}, section The folders:\n" + "\n".join(sorted(missing))
    planned = {name for name, row in shown.items() if "| *Planned:* " in row}
    assert set(shown) - set(tree) == planned, "the map shows what is not there, or no plan any more"


def test_each_row_of_the_map_imports_only_from_those_above_it() -> None:
    tops = [name.removesuffix("/").removesuffix(".py") for name in rows_of_the_map()]
    tops = [name for name in tops if name in ALLOWED]
    assert set(tops) == set(ALLOWED)
    for number, name in enumerate(tops):
        assert ALLOWED[name] <= set(tops[:number]), f"{name} stands too far up in {MAP.name}"


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        pytest.param(
            "kernel/a.py",
            "\nimport coterie.runtime.tcp",
            "src/coterie/kernel/a.py:2: kernel imports runtime (coterie.runtime.tcp);"
            " allowed: no other folder",
            id="upwards",
        ),
        pytest.param(
            "ordering/a.py",
            "from coterie import membership",
            "ordering imports membership (coterie.membership); allowed: journal, kernel",
            id="sideways",
        ),
        pytest.param(
            "runtime/deep/a.py",
            "def f():\n    from ...simulation import disk",
            "a.py:2: runtime imports simulation",
            id="relative",
        ),
        pytest.param(
            "journal/a.py",
            "from coterie import __version__",
            "journal imports the package itself (coterie.__version__); allowed: kernel",
            id="the-package-itself",
        ),
        pytest.param(
            "stacks.py",
            "if TYPE_CHECKING:\n    from coterie.runtime import x",
            "stacks imports runtime",
            id="for-types-only",
        ),
        pytest.param("membership/a.py", "import time", "imports time;", id="clock"),
        pytest.param("vsr/a.py", "from os.path import join", "imports os.path.join", id="files"),
        pytest.param("kernel/a.py", "import random", "imports random;", id="randomness"),
        pytest.param("kernel/a.py", "from random import choice", "random.choice", id="choice"),
        pytest.param("kernel/a.py", "print(1)", "kernel calls print()", id="print"),
        pytest.param("cli/a.py", "import pickle", "pickle, which is allowed nowhere", id="pickle"),
        pytest.param("cli/a.py", "builtins.eval(x)", "eval() is allowed nowhere", id="eval"),
    ],
)
def test_a_broken_rule_is_found(path: str, source: str, expected: str) -> None:
    [found] = violations(source, PurePath(path))
    assert expected in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("kernel/a.py", "from coterie.kernel.views import View"),
        ("kernel/a.py", "from .views import View"),
        ("kernel/a.py", "from random import Random"),
        ("kernel/a.py", "if TYPE_CHECKING:\n    import random"),
        ("journal/a.py", "import os, time\nfrom ..kernel import views\nopen('x')"),
        ("cli/a.py", "import coterie\nfrom coterie.pipeline import read\nprint(1)"),
        ("runtime/a.py", "import re\nre.compile('x')\nself.eval(1)"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str) -> None:
    assert violations(source, PurePath(path)) == []
