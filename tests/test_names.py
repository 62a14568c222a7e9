"""What a program needs is at the top level: `import coterie` is enough."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from tests.patience import PATIENCE

import coterie

ROOT = Path(__file__).parents[1]

# Where the calls of users end: everything that is raised on purpose in these may reach them.
CALLED_BY_USERS = ("client", "local_group", "objects", "protocol", "transactional", "vsr", "kernel")

# Raised in those folders, and never seen by a caller: who meets it, instead.
OF_INSIDE = {
    "BadDatagram": "a port drops the datagram and counts it, or answers that it is refused",
    "BadMessage": "layers drop the message and count it",
    "BadSnapshot": "a replica keeps its old state and asks another one",
    "FrameError": "a transport closes the connection and counts it",
    "HandshakeFailed": "a connection closes; callers get `NotWelcome`",
    "NotPrimary": "the paper's own interface, `coterie.objects.paper`",
    "PayloadTooLarge": "a member that casts; calls are `CommandTooLarge` before that",
    "ReplicaBroken": "a replica stops",
    "TransferUnfinished": "the paper's own interface, `coterie.objects.paper`",
}


def errors_of(folders: tuple[str, ...]) -> dict[str, type[coterie.CoterieError]]:
    """Give all errors that are defined in these folders, by name."""
    found: dict[str, type[coterie.CoterieError]] = {}
    for module in walk_packages(coterie.__path__, "coterie."):
        if module.name.split(".")[1] not in folders:
            continue
        for name, value in vars(import_module(module.name)).items():
            is_error = isinstance(value, type) and issubclass(value, coterie.CoterieError)
            if is_error and value.__module__ == module.name:
                found[name] = value
    return found


def test_every_error_that_a_call_can_end_in_is_at_the_top() -> None:
    errors = errors_of(CALLED_BY_USERS)
    assert set(OF_INSIDE) <= set(errors), "an error that is gone needs no reason"
    for name, error in errors.items():
        if name not in OF_INSIDE:
            assert getattr(coterie, name, None) is error, f"{error} is not coterie.{name}"


def test_every_error_that_public_calls_and_pages_name_is_at_the_top() -> None:
    errors = {
        name
        for module in walk_packages(coterie.__path__, "coterie.")
        if module.name.split(".")[1] not in {"pipeline", "bench", "campaign", "demo", "cli"}
        for name, value in vars(import_module(module.name)).items()
        if isinstance(value, type) and issubclass(value, coterie.CoterieError)
    }
    texts = {f"coterie.{name}": str(getattr(coterie, name).__doc__) for name in coterie.__all__}
    texts |= {
        str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
        for page in (ROOT / "docs" / "use").glob("*.md")
    }
    named = [
        (where, name)
        for where, text in texts.items()
        for name in re.findall(r"`(?:coterie\.)?([A-Z]\w+)`", text)
        if name in errors
    ]
    assert named, "pages name errors"
    missing = [(where, n) for where, n in named if n not in coterie.__all__ and n not in OF_INSIDE]
    assert missing == []


def test_dir_tells_and_all_is_complete() -> None:
    assert set(coterie.__all__) <= set(dir(coterie))
    # What the type checker is told, what is imported when asked for, and what `*` means agree.
    tree = ast.parse(Path(coterie.__file__).read_text(encoding="utf-8"))
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        (alias.name, node.module)
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == set(coterie._WHERE.items())
    assert sorted(["__version__", *(name for name, _ in told)]) == coterie.__all__
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None


def test_a_name_that_is_not_there_is_said_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        _ = coterie.NoSuchThing  # type: ignore[attr-defined]


def test_nothing_is_imported_before_somebody_asks() -> None:
    asked = "import sys, coterie; dir(coterie); print([m for m in sys.modules if 'coterie.' in m])"
    ran = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert ran.stdout.strip() == "[]"


class Ticket:
    """Takes time, chance and ids from the top level."""

    drawn: int = 0

    @coterie.update
    def draw(self) -> tuple[int, int, str]:
        """Give the time, a number and an id."""
        self.drawn = coterie.random().randrange(1000)
        return coterie.now(), self.drawn, coterie.new_id()


def test_methods_take_time_chance_and_ids_from_the_top_level() -> None:
    async def draw() -> tuple[int, int, str]:
        async with coterie.local(Ticket, replicas=3) as ticket:
            return await ticket.draw()

    time, number, id = asyncio.run(draw())
    assert time > 0
    assert 0 <= number < 1000
    assert id
    with pytest.raises(coterie.NotInAnUpdate):
        coterie.now()
