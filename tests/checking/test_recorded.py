"""`coterie check`: from the lines of a file to verdict, evidence and picture."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import pytest

from coterie.checking.recorded.edn import forms
from coterie.checking.recorded.errors import NoHistory
from coterie.checking.recorded.reading import FORMATS, CallEnd, read_calls
from coterie.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
HISTORIES = ROOT / ".." / "shared" / "histories"
EXAMPLE = ROOT / "docs" / "use" / "checking-example.jsonl"


@pytest.fixture
def checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `coterie check` on a text; give exit status, output and errors."""

    def run(text: str, *options: str) -> tuple[int, str, str]:
        path = tmp_path / "history"
        path.write_text(text, encoding="utf-8")
        status = main(["check", str(path), *options])
        out, err = capsys.readouterr()
        return status, out, err.replace(str(path), "FILE")

    return run


# Histories with known verdicts ------------------------------------------------------------------


def recorded() -> list[tuple[str, str, int]]:
    verdicts = HISTORIES / "etcd" / "verdicts.csv"
    if not verdicts.exists():
        return []
    with verdicts.open(encoding="utf-8") as file:
        etcd = [
            (f"etcd/{name}", "register", 0 if word == "true" else 1)
            for name, word in csv.reader(file)
        ]
    kv = [
        (f"kv/{name}.txt", "kv", 0 if name.endswith("ok") else 1)
        for name in ("c01-ok", "c01-bad", "c10-ok", "c10-bad")
    ]
    return etcd + kv


@pytest.mark.skipif(not recorded(), reason="the recorded histories are not here")
def test_recorded_histories_of_real_systems(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(recorded()) == 54
    for name, model, expected in recorded():
        assert main(["check", str(HISTORIES / name), "--model", model]) == expected, name
    capsys.readouterr()


# Verdicts ---------------------------------------------------------------------------------------


def events(*lines: str) -> str:
    """JSON lines from short ones: process type f value."""
    texts = []
    for line in lines:
        process, kind, name, value = line.split(" ", 3)
        texts.append(f'{{"process": {process}, "type": "{kind}", "f": "{name}", "value": {value}}}')
    return "\n".join(texts)


GOOD: dict[str, str] = {
    "register": events("1 invoke write 3", "2 invoke read null", "2 ok read 3", "1 ok write 3"),
    "counter": events("1 invoke add 2", "1 ok add 2", "2 invoke read null", "2 ok read 2"),
    "queue": events(
        "1 invoke enqueue 3", "1 ok enqueue 3", "2 invoke dequeue null", "2 ok dequeue 3"
    ),
    "lock": events("1 invoke acquire null", "1 ok acquire null", "2 invoke acquire null"),
    "list-append": events(
        '1 invoke txn [["append", "x", 1]]',
        '1 ok txn [["append", "x", 1]]',
        '2 invoke txn [["r", "x", null]]',
        '2 ok txn [["r", "x", [1]]]',
    ),
}
BAD: dict[str, str] = {
    "register": events("1 invoke write 3", "1 ok write 3", "2 invoke read null", "2 ok read null"),
    "counter": events("1 invoke add 2", "1 ok add 2", "2 invoke read null", "2 ok read 3"),
    "queue": events("2 invoke dequeue null", "2 ok dequeue 3"),
    "lock": events(
        "1 invoke acquire null", "1 ok acquire null", "2 invoke acquire null", "2 ok acquire null"
    ),
    "list-append": events('2 invoke txn [["r", "x", null]]', '2 ok txn [["r", "x", [1]]]'),
}


@pytest.mark.parametrize("model", GOOD)
def test_small_histories_of_each_model(
    model: str, checked: Callable[..., tuple[int, str, str]]
) -> None:
    status, out, _ = checked(GOOD[model], "--model", model)
    assert status == 0, out
    status, out, _ = checked(BAD[model], "--model", model)
    assert status == 1
    assert "NOT " in out
    assert "line " in out


def test_the_evidence_names_lines_and_why_nothing_else_helps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", str(EXAMPLE), "--model", "register"]) == 1
    out = capsys.readouterr().out
    assert "  line 5: till 2  read → 6  ├─┤\n  line 6: till 3  read → 7      ├─┤" in out
    assert "Nothing else helps: each of the other 4 was allowed" in out
    assert "7 was given to it by line 1 (write 7 by till 1).\n" in out


def test_keys_are_judged_one_by_one(checked: Callable[..., tuple[int, str, str]]) -> None:
    lines = [
        '{"process": 1, "f": "write", "key": "x", "value": 1, "called": 0, "returned": 1}',
        '{"process": 1, "f": "read", "key": "y", "result": null, "called": 2, "returned": 3}',
    ]
    assert checked("\n".join(lines), "--model", "register")[0] == 0
    pairs = events("1 invoke write [8,1]", "1 ok write [8,1]", "2 invoke read [9,null]")
    assert checked(pairs, "--model", "register", "--independent")[0] == 0


def test_no_verdict_within_the_limits_has_a_status_of_its_own(
    checked: Callable[..., tuple[int, str, str]],
) -> None:
    many = [f"{n} invoke append 1" for n in range(9)]
    text = "\n".join(
        f'{{"process": {n}, "f": "append", "key": "k", "value": "{n}", "called": 0, "returned": 9}}'
        for n in range(len(many))
    )
    text += '\n{"process": 99, "f": "get", "key": "k", "result": "?", "called": 10, "returned": 11}'
    status, out, _ = checked(text, "--model", "kv", "--steps", "500")
    assert status == 3
    assert "no verdict" in out
    assert "--steps" in out


def test_clocks_that_differ(checked: Callable[..., tuple[int, str, str]]) -> None:
    text = (
        '{"process": 1, "f": "write", "value": 1, "called": 0, "returned": 1}\n'
        '{"process": 2, "f": "read", "result": null, "called": 2, "returned": 3}'
    )
    assert checked(text, "--model", "register")[0] == 1
    assert checked(text, "--model", "register", "--widen", "0.5")[0] == 0


def test_a_model_of_ones_own(tmp_path: Path, checked: Callable[..., tuple[int, str, str]]) -> None:
    page = (ROOT / "docs" / "use" / "checking.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert source is not None
    (tmp_path / "seats.py").write_text(source.group(1), encoding="utf-8")
    model = f"{tmp_path / 'seats.py'}:Seats"
    line = '{{"process": {0}, "f": "reserve", "result": true, "called": {0}, "returned": {0}.5}}'
    assert checked("\n".join(line.format(n) for n in range(2)), "--model", model)[0] == 0
    assert checked("\n".join(line.format(n) for n in range(3)), "--model", model)[0] == 1


def test_the_verdict_as_json(checked: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = checked(BAD["register"], "--model", "register", "--json")
    found = msgspec.json.decode(out)
    assert (status, found["verdict"], found["promise"]) == (1, "broken", "linearizable")
    assert [each["where"] for each in found["contradict"]] == ["line 1-2", "line 3-4"]


# Transactions -----------------------------------------------------------------------------------

ANOMALIES = {
    "A circle": (
        ('["append","x",1],["r","y",null]', '["append","x",1],["r","y",[]]'),
        ('["append","y",1],["r","x",null]', '["append","y",1],["r","x",[]]'),
    ),
    "Two orders": (
        ('["append","x",1],["append","x",2]', '["append","x",1],["append","x",2]'),
        ('["r","x",null]', '["r","x",[1,2]]'),
        ('["r","x",null]', '["r","x",[2]]'),
    ),
    "Intermediate read": (
        ('["append","x",1],["append","x",2]', '["append","x",1],["append","x",2]'),
        ('["r","x",null]', '["r","x",[1]]'),
    ),
    "Appended twice": (
        ('["append","x",1]', '["append","x",1]'),
        ('["r","x",null]', '["r","x",[1,1]]'),
    ),
    "Internal": (('["append","x",1],["r","x",null]', '["append","x",1],["r","x",[]]'),),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_what_transactions_cannot_have_seen(
    name: str, checked: Callable[..., tuple[int, str, str]]
) -> None:
    lines = [f"{n} invoke txn [{asked}]" for n, (asked, _) in enumerate(ANOMALIES[name])]
    lines += [f"{n} ok txn [{answer}]" for n, (_, answer) in enumerate(ANOMALIES[name])]
    status, out, _ = checked(events(*lines), "--model", "list-append")
    assert status == 1
    assert name in out


def test_a_failed_transaction_is_not_seen_and_a_lost_one_may_be(
    checked: Callable[..., tuple[int, str, str]],
) -> None:
    def text(ending: str) -> str:
        return events(
            '1 invoke txn [["append","x",1]]',
            f'1 {ending} txn [["append","x",1]]',
            '2 invoke txn [["r","x",null]]',
            '2 ok txn [["r","x",[1]]]',
        )

    status, out, _ = checked(text("fail"), "--model", "list-append")
    assert status == 1
    assert "Aborted read" in out
    assert checked(text("info"), "--model", "list-append")[0] == 0


def test_strictly_nobody_sees_the_past(checked: Callable[..., tuple[int, str, str]]) -> None:
    text = events(
        '1 invoke txn [["append","x",1]]',
        '1 ok txn [["append","x",1]]',
        '2 invoke txn [["r","x",null]]',
        '2 ok txn [["r","x",[]]]',
    )
    assert checked(text, "--model", "list-append")[0] == 0
    status, out, _ = checked(text, "--model", "list-append", "--strict")
    assert status == 1
    assert "returned before the other was called" in out


# Notations --------------------------------------------------------------------------------------


def test_jepsens_edn() -> None:
    text = """
    [#jepsen.history.Op{:index 0, :time 10, :process 0, :type :invoke, :f :cas, :value [0 3]}
     {:process :nemesis, :type :info, :f :start, :value {:a #{1 2}}} ; a remark
     #_ {:process 7}
     {:process 0, :type :ok, :f :cas, :value [0 3], :time 12}]
    """
    found = read_calls(text)
    assert found.skipped == 1
    (call,) = found.calls
    assert (call.process, call.name, call.value) == (0, "cas", (0, 3))
    assert (call.outcome, call.where, call.times) == (CallEnd.RETURNED, "2-5", (10, 12))


def test_edn_values() -> None:
    text = r'nil true -3 4N 2.5 "a\"b\n" :key sym \a (1 2) #{1} {:a {:b 1}} #inst "x"'
    values = [value for _, value in forms(text)]
    assert values == [
        *(None, True, -3, 4, 2.5, 'a"b\n', ":key", "sym", "a", (1, 2), frozenset({1})),
        *({":a": ((":b", 1),)}, "x"),
    ]


def test_jepsens_text() -> None:
    text = "INFO  jepsen.util - 3\t:invoke\t:cas\t[3 0]\n3\t:fail\t:cas\t[3 0]\n"
    (call,) = read_calls(text).calls
    assert (call.process, call.value, call.outcome) == (3, (3, 0), CallEnd.FAILED)


ERRORS = {
    "nothing": ("", "FILE: there is nothing in it"),
    "no JSON": ('{"process": 1,\n', "FILE:1: this is not one JSON object"),
    "an array": ('[{"process": 1}]', "FILE:1: this is one JSON array"),
    "no process": ('{"type": "ok", "f": "read"}', "FILE:1: there is no `process`"),
    "no name": ('{"process": 1, "type": "ok"}', "FILE:1: there is no `f`"),
    "no event": ('{"process": 1, "f": "x", "type": "end"}', "FILE:1: an event is invoke, ok"),
    "no time": ('{"process": 1, "f": "x"}', "FILE:1: `called` is missing"),
    "a wrong time": ('{"process": 1, "f": "x", "called": "x"}', "FILE:1: `called` is a number"),
    "back in time": (
        '{"process": 1, "f": "read", "called": 5, "returned": 4}',
        "FILE:1: it returned at 4, before its call at 5",
    ),
    "no such function": (events("1 invoke enqueue 1"), "FILE:1: this object has no enqueue; it"),
    "no pair": (events("1 invoke cas 1"), "FILE:1: cas takes two values"),
    "an end too many": (events("1 ok read 1"), "FILE:1: ok for process 1, which has not called"),
    "another's end": (
        events("1 invoke write 1", "1 ok read 1"),
        "FILE:2: ok of read for process 1, whose call of line 1 was write",
    ),
    "overlapping events": (
        events("1 invoke write 1", "1 invoke read null"),
        "FILE:2: process 1 calls read, while its write of line 1 has not ended",
    ),
    "overlapping operations": (
        (
            '{"process": 1, "f": "read", "result": 1, "called": 0, "returned": 4}\n'
            '{"process": 1, "f": "read", "result": 1, "called": 3, "returned": 5}'
        ),
        "FILE:2: process 1 calls read at 3, while its read of line 1 lasts until 4",
    ),
    "no order": (
        (
            '{"process": 1, "type": "invoke", "f": "read", "time": 5}\n'
            '{"process": 1, "type": "ok", "f": "read", "time": 4}'
        ),
        "FILE:2: time 4 comes after time 5 of line 1",
    ),
    "unclosed": ("[{:process 1", "FILE:1: '{' is never closed"),
    "deep": ("{" + "[" * 200, "FILE:1: more than 100 brackets"),
    "deep JSON": ('{"value": ' + "[" * 100_000, "FILE:1: this is not one JSON object"),
    "words": ("hello world", "FILE:1: expected a process, :invoke"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_no_history_is_said_with_its_line(
    name: str, checked: Callable[..., tuple[int, str, str]]
) -> None:
    text, message = ERRORS[name]
    status, _, err = checked(text, "--model", "register")
    assert status == 2
    assert message in err


def test_wrong_options_are_said(checked: Callable[..., tuple[int, str, str]]) -> None:
    for options, message in (
        (("--model", "regster"), "did you mean 'register'?"),
        (("--model", "nowhere.py:Model"), "nowhere.py"),
        (("--model", "register", "--strict"), "--strict is for --model list-append"),
        (("--model", "register", "--steps", "0"), "--steps is at least 1"),
        (("--model", "list-append", "--widen", "1"), "--widen means nothing"),
        (("--model", "register", "--start", "{"), "--start is no JSON"),
    ):
        status, _, err = checked(GOOD["register"], *options)
        assert status == 2
        assert message in err


def test_a_value_appended_twice_cannot_be_judged(
    checked: Callable[..., tuple[int, str, str]],
) -> None:
    text = events('1 invoke txn [["append","x",1]]', '2 invoke txn [["append","x",1]]')
    status, _, err = checked(text, "--model", "list-append")
    assert status == 2
    assert "FILE:2: 1 is appended to 'x' here and in line 1" in err


@pytest.mark.parametrize("junk", [b"\xff\xfe", b"{\xff", b"\x00" * 9, b"#", b'"', b"\\", b"[[["])
def test_any_bytes_end_in_a_sentence(junk: bytes, tmp_path: Path) -> None:
    path = tmp_path / "junk"
    path.write_bytes(junk)
    assert main(["check", str(path), "--model", "register"]) == 2


# Pictures ---------------------------------------------------------------------------------------


def test_the_page_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["check", str(EXAMPLE), "--model", "register", "--html", str(page)]) == 1
    text = page.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"(src|href)=|url\((?!#)|@import", text)
    assert "read → 7 ✗" in text
    capsys.readouterr()


def test_the_page_quotes_what_a_file_says(
    tmp_path: Path, checked: Callable[..., tuple[int, str, str]]
) -> None:
    page = tmp_path / "page.html"
    text = events("1 invoke read null", '1 ok read "<script>alert(1)</script>"')
    assert checked(text, "--model", "register", "--html", str(page))[0] == 1
    assert "<script" not in page.read_text(encoding="utf-8")


def test_the_picture_of_the_documentation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "picture.svg"
    assert main(["check", str(EXAMPLE), "--model", "register", "--svg", str(picture)]) == 1
    drawn = picture.read_text(encoding="utf-8")
    ET.fromstring(drawn)  # noqa: S314 -- our own
    assert drawn == EXAMPLE.with_suffix(".svg").read_text(encoding="utf-8")
    capsys.readouterr()


def test_the_picture_of_a_circle_has_its_arrows(
    tmp_path: Path, checked: Callable[..., tuple[int, str, str]]
) -> None:
    lines = [f"{n} invoke txn [{asked}]" for n, (asked, _) in enumerate(ANOMALIES["A circle"])]
    lines += [f"{n} ok txn [{answer}]" for n, (_, answer) in enumerate(ANOMALIES["A circle"])]
    picture = tmp_path / "picture.svg"
    checked(events(*lines), "--model", "list-append", "--svg", str(picture))
    assert picture.read_text(encoding="utf-8").count('class="arrow"') == 2


def test_no_line_leads_to_a_crash() -> None:
    """Pieces of histories in any order are a history or a sentence."""
    pieces = ['{"process":1', ',"type":"ok"', ',"f":"read"', "}", "\n", "[", ":a", '"', "\t", "1"]
    for words in product(pieces, repeat=3):
        for notation in FORMATS:
            with suppress(NoHistory):
                read_calls("".join(words), notation)
