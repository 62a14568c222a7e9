"""What holds for every file under version control."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Which index packages come from is the installing machine's own setting, and a path of one machine
# means nothing on another. Brackets keep the patterns from matching themselves.
FORBIDDEN = {
    "a package index": r"py[p]i\.org|pyth[o]nhosted|anac[o]nda\.(org|com)",
    "an option that names an index": r"--(extra-)?index[-]url|--find[-]links|--trusted[-]host",
    "an absolute path of one machine": r"(?<![\w.])/(work|root|home/\w+|Users/\w+)[/]",
}


def tracked_files() -> Iterator[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - git is wherever the machine has it
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("this is not a git checkout")
    files = (ROOT / name for name in listing.stdout.split("\0") if name)
    return (path for path in files if path.is_file())


def findings(text: str) -> list[str]:
    return [
        f"line {number} names {what}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in FORBIDDEN.items()
        if re.search(pattern, line)
    ]


def test_no_file_names_an_index_or_a_place_on_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {finding}"
        for path in tracked_files()
        for finding in findings(path.read_bytes().decode(errors="replace"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "see https://py" + "pi.org/project/x",
        "pip install --index" + "-url=x",
        "cd /wo" + "rk/main",
        'cache = "/ro' + 'ot/.cache"',
    ],
)
def test_a_forbidden_line_is_found(line: str) -> None:
    assert len(findings(f"first\n{line}\n")) == 1


@pytest.mark.parametrize("line", ["see src/work/x", "#!/usr/bin/env bash", "/homework/", "a/root/"])
def test_an_innocent_line_is_not(line: str) -> None:
    assert findings(line) == []


def test_constraints_pin_each_package_once() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    names = [pin.partition("==")[0] for pin in pins]
    assert names == sorted(set(names))
