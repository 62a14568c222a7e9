"""How ./coterie and ./check treat .venv, with an interpreter that only pretends to install."""

import fcntl
import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from shutil import copy, copytree, which

import pytest

ROOT = Path(__file__).parent.parent

REAL = shlex.quote(sys.executable)

# Everything but making environments and installing is left to the real interpreter. In a made
# environment, `python` is this script again.
PRETENDER = """\
#!/usr/bin/env bash
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip")
        echo "${{*: -1}}" >>{home}/installed
        [[ ! -e {home}/offline ]] || {{ echo "the network is down"; exit 1; }}
        exec >"${{0%python}}coterie"
        printf '#!/bin/sh\\n[ "$COTERIE_EXTRAS_LATER$2" != 1run ] || exit 75\\n'
        printf 'echo "ran: $*"\\n'
        chmod +x "${{0%python}}coterie" ;;
    *) exec {real} "$@" ;;
esac
"""

BASE = ["flit_core", ".[fast]"]


class Checkout:
    """A copy of the wrappers, in a folder whose name is no easy one."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "a check out"
        self.root.mkdir()
        copy(ROOT / "coterie", self.root)
        copy(ROOT / "check", self.root)
        copytree(ROOT / ".tools", self.root / ".tools")
        (self.root / "pyproject.toml").write_text("a project")
        (self.root / "constraints.txt").write_text("its pins")
        self.python = self.program(
            "pretender", PRETENDER.format(home=shlex.quote(str(home)), real=REAL)
        )

    def program(self, name: str, text: str) -> Path:
        path = self.home / name
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755)
        return path

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.root / command[0], *command[1:]],
            env={**os.environ, "COTERIE_PYTHON": str(self.python), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **environment: str) -> tuple[int, str, str]:
        with self.start(*command, **environment) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def installed(self) -> list[str]:
        """What was installed since this was last asked."""
        log = self.home / "installed"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_the_first_use_installs_and_the_second_is_silent(checkout: Checkout) -> None:
    status, out, err = checkout.run("coterie", "sim", "--seed", "7")
    assert (status, out) == (0, "ran: sim --seed 7\n")
    assert err == "coterie: preparing .venv, which may take a minute\n"
    assert checkout.installed() == BASE

    assert checkout.run("coterie", "sim") == (0, "ran: sim\n", "")
    assert checkout.installed() == []


@pytest.mark.parametrize("source", ["pyproject.toml", "constraints.txt"])
def test_a_changed_source_installs_again(checkout: Checkout, source: str) -> None:
    checkout.run("coterie")
    checkout.installed()

    (checkout.root / source).write_text("changed")
    assert checkout.run("coterie")[0] == 0
    assert checkout.installed() == BASE


def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    checkout.run("coterie")
    (checkout.root / ".venv" / "old").touch()
    checkout.installed()

    checkout.root = checkout.root.rename(checkout.home / "elsewhere")
    assert checkout.run("coterie")[0] == 0
    assert checkout.installed() == BASE
    assert not (checkout.root / ".venv" / "old").exists()


def test_extras_come_with_their_first_command(checkout: Checkout) -> None:
    checkout.run("coterie")
    checkout.installed()

    assert checkout.run("coterie", "bench", "order")[1] == "ran: bench order\n"
    assert checkout.installed() == ["coterie[bench]", "coterie[bench-rivals]"]
    assert checkout.run("coterie", "sim", "bench")[0] == 0
    assert checkout.run("coterie", "bench")[0] == 0
    assert checkout.installed() == []
    assert checkout.run("coterie", "bench", "pipeline")[0] == 0
    assert checkout.installed() == ["coterie[pipeline]"]


def test_the_pipeline_is_installed_once_a_command_is_found_right(checkout: Checkout) -> None:
    """It took two minutes to learn that an option is misspelt."""
    assert checkout.run("coterie", "pipeline", "dance")[:2] == (0, "ran: pipeline dance\n")
    assert checkout.installed() == BASE
    assert checkout.run("coterie", "pipeline", "run")[:2] == (0, "ran: pipeline run\n")
    assert checkout.installed() == ["coterie[pipeline]"]
    assert checkout.run("coterie", "pipeline", "run")[:2] == (0, "ran: pipeline run\n")
    assert checkout.installed() == []


@pytest.mark.parametrize("command", ["campaign", "demo"])
def test_what_needs_spark_brings_it(checkout: Checkout, command: str) -> None:
    """The demo is what a newcomer tries first, in a fresh checkout."""
    assert checkout.run("coterie", command, "--seed", "3")[:2] == (0, f"ran: {command} --seed 3\n")
    assert checkout.installed() == [*BASE, "coterie[pipeline]"]


@pytest.mark.parametrize("command", [("demo", "program"), ("program", "run", "--", "x", "--help")])
def test_what_needs_programs_brings_that(checkout: Checkout, command: tuple[str, ...]) -> None:
    """The demo of a program waited two minutes for replicas that could not start."""
    assert checkout.run("coterie", *command)[0] == 0
    assert checkout.installed() == [*BASE, "coterie[program]"]


@pytest.mark.parametrize("command", ["campaign", "demo", "bench", "program", "pipeline"])
def test_help_needs_nothing_else(checkout: Checkout, command: str) -> None:
    assert checkout.run("coterie", command, "order", "--help")[0] == 0
    assert checkout.installed() == BASE


def test_a_failed_installation_is_shown_and_done_again(checkout: Checkout) -> None:
    (checkout.home / "offline").touch()
    for _ in range(2):
        status, _, err = checkout.run("coterie")
        assert status == 1
        assert "the network is down\ncoterie: could not prepare .venv" in err
        assert checkout.installed() == BASE[:1]

    (checkout.home / "offline").unlink()
    assert checkout.run("coterie", "sim")[:2] == (0, "ran: sim\n")
    assert checkout.installed() == BASE


def test_two_first_uses_at_once_install_once(checkout: Checkout) -> None:
    """The test holds the lock until both wait for it, so that they do meet."""
    with (checkout.root / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        processes = [checkout.start("coterie", word) for word in ("one", "two")]
        for process in processes:
            assert process.stderr is not None
            assert "another run is preparing .venv" in process.stderr.readline()
    endings = []
    for process in processes:
        with process:
            endings.append((process.communicate()[0], process.returncode))
    assert endings == [("ran: one\n", 0), ("ran: two\n", 0)]
    assert checkout.installed() == BASE


def test_a_shim_that_only_complains_is_passed_over(checkout: Checkout) -> None:
    checkout.program("python3.13", "#!/bin/sh\necho 'pyenv: not found' >&2; exit 127")
    checkout.python.rename(checkout.home / "python3.12")
    path = f"{checkout.home}:{os.environ['PATH']}"
    assert checkout.run("coterie", COTERIE_PYTHON="", PATH=path)[0] == 0
    assert checkout.installed() == BASE


@pytest.mark.parametrize(
    ("python", "complaint"),
    [
        ("exit 1", "  {python}: does not run"),
        ("echo 'is version 3.9' >&2; exit 1", "  {python}: is version 3.9"),
        (
            # As on Debian without its python3-venv package.
            f"""exec {REAL} -c "import sys; sys.modules['ensurepip'] = None; $3" """,
            "  {python}: has no venv module; on Debian and Ubuntu: apt-get install python3-venv",
        ),
    ],
    ids=["broken", "old", "without-venv"],
)
def test_an_unfit_interpreter_is_refused(checkout: Checkout, python: str, complaint: str) -> None:
    unfit = checkout.program("unfit", f"#!/bin/sh\n{python}\n")
    status, out, err = checkout.run("coterie", COTERIE_PYTHON=str(unfit))
    assert (status, out) == (1, "")
    assert err.startswith("coterie: needs Python 3.11 or newer")
    assert err.endswith(complaint.format(python=unfit) + "\n")
    assert not (checkout.root / ".venv").exists()


def test_a_missing_interpreter_is_named(checkout: Checkout) -> None:
    err = checkout.run("coterie", COTERIE_PYTHON="/nowhere/python")[2]
    assert err.endswith("Tried:\n  /nowhere/python: No such file or directory\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fast"], "check: does not know '--fast'; ./check --help lists the options.\n"),
        (
            ["--quick", "--long"],
            "check: takes one option at most, not 2; ./check --help lists the options.\n",
        ),
    ],
)
def test_check_refuses_options_before_it_installs(
    checkout: Checkout, options: list[str], sentence: str
) -> None:
    assert checkout.run("check", *options) == (2, "", sentence)
    assert checkout.installed() == []


@pytest.mark.parametrize("can_install", [True, False])
def test_a_missing_browser_is_installed_or_missed_loudly(
    checkout: Checkout, *, can_install: bool
) -> None:
    folder = checkout.home / "bin"
    folder.mkdir()
    for tool in ("bash", "cat", "chmod", "cp", "dirname", "env", "mkdir", "readlink", "rm"):
        found = which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    checkout.program("bin/id", f"#!/bin/sh\necho {0 if can_install else 1000}\n")
    log = shlex.quote(str(checkout.home / "asked"))
    checkout.program(
        "bin/apt-get",
        f"#!/bin/sh\necho $* >>{log}\ncp {folder}/id {folder}/chromium\n",
    )
    status, _, err = checkout.run("check", "--long", PATH=str(folder))
    assert status == 1
    assert "FAILED at format" in err, "there is no ruff in this environment"
    is_asked = (checkout.home / "asked").exists()
    assert is_asked == can_install
    if can_install:
        assert "install -y --no-install-recommends chromium" in (checkout.home / "asked").read_text(
            "utf-8"
        )
    assert ("WARNING: there is no Chromium and it could not be installed" in err) != can_install
