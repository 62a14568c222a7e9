"""`coterie sim` as its users call it."""

import json
from pathlib import Path

import pytest

from coterie.cli import main as cli
from coterie.journal.disk import FileDisk
from coterie.journal.segments import list_journals

ENGINE = ("sim", "--stack", "SAFE:DYNSEQ:PVSYNC", "--replicas", "3", "--duration", "2")


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["--faults", "all,tea"],
            "there is no fault 'tea' for --engine stack; --list-faults says which are",
        ),
        (["--stack", "VSYNC", "--journals", "x"], "--journals needs a stack that keeps a journal"),
        (["--sync", "weekly"], "weekly"),
    ],
)
def test_misuse_ends_in_one_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sim", *argv]) == 2
    assert sentence in capsys.readouterr().err


def test_faults_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sim", "--list-faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)
    names = [line.split()[0] for line in lines]
    assert {"partition", "power-all", "amnesia", "old-disk"} <= set(names)


def test_a_seed_can_leave_its_journals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*ENGINE, "--seed", "3", "--sync", "none", "--journals", str(tmp_path), "--json"]
    assert cli.main(argv) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []
    assert len(list_journals(FileDisk(tmp_path / "3"))) == 3


def test_all_faults_and_one_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*ENGINE, "--seed", "3", "--faults", "all,old-disk"]) == 0
    assert "1 seeds, no violation" in capsys.readouterr().out


def test_what_needs_an_order_is_refused_where_there_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["sim", "--stack", "pvsync", "--object", "dictionary"]) == 2
    assert capsys.readouterr().err == (
        "coterie: PVSYNC gives no order, so only updates that commute are right on it: "
        "choose --object counter\n"
    )
