"""Which interpreter a user's command is run by, and what it is given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

_PYTHON = re.compile(r"python[\d.]*")
_WITH_VALUE = {"-W", "-X"}
_TRY = (
    "import sys; assert sys.version_info[:2] in ((3, 11), (3, 12)), 'version'; "
    "import greenlet, coterie.program"
)


class BadCommand(Exception):
    """This cannot be run; the message says what to do."""


class ProgramCommand(NamedTuple):
    """A command, taken apart."""

    interpreter: str
    options: list[str]
    words: list[str]
    """A script, `-m MODULE` or `-c CODE`, and its arguments."""


def take_apart(words: list[str]) -> ProgramCommand:
    """Find the interpreter and the program in a command."""
    if not words:
        raise BadCommand("say what to run: coterie program rehearse -- python app.py")
    found = shutil.which(words[0])
    if found is None:
        hint = f": say python {words[0]}" if words[0].endswith(".py") else ""
        raise BadCommand(f"there is no command '{words[0]}'{hint}")
    if _PYTHON.fullmatch(Path(found).name):
        return _after_python(found, words[1:])
    interpreter = _shebang(found)
    if interpreter is None:
        raise BadCommand(f"'{words[0]}' is not run by Python; only Python programs are replicated")
    return ProgramCommand(interpreter, [], [found, *words[1:]])


def _after_python(interpreter: str, words: list[str]) -> ProgramCommand:
    options = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in {"-m", "-c", "-"}:
        count = 2 if words[at] in _WITH_VALUE else 1
        options += words[at : at + count]
        at += count
    rest = words[at:]
    needed = 2 if rest[:1] in (["-m"], ["-c"]) else 1
    if len(rest) < needed or rest[0] == "-":
        raise BadCommand("say what Python is to run: a script, -m MODULE or -c CODE")
    if needed == 1 and not Path(rest[0]).exists():
        raise BadCommand(f"there is no file '{rest[0]}'")
    return ProgramCommand(interpreter, options, rest)


def _shebang(path: str) -> str | None:
    with Path(path).open("rb") as file:
        line = file.readline(4096)
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        words = words[1:]
    if not words or not _PYTHON.fullmatch(Path(words[0]).name):
        return None
    return shutil.which(words[0])


def refuse_interpreter(interpreter: str) -> None:
    """Raise `BadCommand` if an interpreter cannot run programs for us."""
    ran = subprocess.run(  # noqa: S603 -- the user's own interpreter
        [interpreter, "-P", "-c", _TRY],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    if ran.returncode == 0:
        return
    if "AssertionError: version" in ran.stderr:
        raise BadCommand(f"{interpreter} is not Python 3.11 or 3.12, which programs can run under")
    last = (ran.stderr.strip().splitlines() or ["it does not run"])[-1]
    raise BadCommand(
        f"{interpreter} has to have Coterie, too ({last}): {interpreter} -m pip install"
        " 'coterie[program]'"
    )


def environment() -> dict[str, str]:
    """Give the environment that all processes of a program get."""
    found = dict(os.environ)
    if not found.get("PYTHONHASHSEED", "").isdigit():
        found["PYTHONHASHSEED"] = str(int.from_bytes(os.urandom(4)) % 4_294_967_295)
    return found
