"""Everything from outside is decoded in one place, which raises one error."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from coterie.kernel.decoding import Decoder, JsonDecoder, decode_any, decode_json, decode_text

PACKAGE = Path(__file__).parent.parent / "src" / "coterie"

# What decodes, however it is imported; encoding is nobody's danger.
DECODING = re.compile(
    r"(msgspec\.)?(msgpack|json|yaml|toml)\.(Decoder|decode)|json\.(loads?|JSONDecoder)"
)
DECODING_NAMES = {("msgspec.msgpack", "decode"), ("msgspec.msgpack", "Decoder")} | {
    (module, name)
    for module in ("msgspec.json", "json")
    for name in ("decode", "Decoder", "load", "loads", "JSONDecoder")
}

# The helper itself; the workers of a benchmark are ours, too.
EXEMPT = {"kernel/decoding.py"}


def other_decoding(source: str) -> list[int]:
    """The lines of a module that decode by other means than `coterie.kernel.decoding`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            is_decoding = DECODING.fullmatch(ast.unparse(node)) is not None
        elif isinstance(node, ast.ImportFrom):
            is_decoding = any((node.module, each.name) in DECODING_NAMES for each in node.names)
        else:
            continue
        if is_decoding:
            found.append(node.lineno)
    return found


def test_nobody_else_decodes() -> None:
    found = [
        f"src/coterie/{path.relative_to(PACKAGE)}:{line}: use coterie.kernel.decoding"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).as_posix() not in EXEMPT
        and path.relative_to(PACKAGE).parts[0] != "bench"
        for line in other_decoding(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import msgspec\nmsgspec.msgpack.decode(b'')",
        "import msgspec\nx = msgspec.json.Decoder(int)",
        "from msgspec import msgpack\nmsgpack.Decoder(int).decode(b'')",
        "from msgspec.msgpack import decode",
        "import json\njson.loads('1')",
    ],
)
def test_other_ways_are_found(source: str) -> None:
    assert other_decoding(source)


def test_what_is_allowed_passes() -> None:
    assert not other_decoding("msgspec.json.encode(x).decode()\nDecoder(int).decode(b'')")


BROKEN_TEXT = b"\xa1\xff"
DEEP = b"\x91" * 100_000 + b"\x01"


@pytest.mark.parametrize(
    "data",
    [b"", BROKEN_TEXT, DEEP, b"\x91" + BROKEN_TEXT, b"\x81" + BROKEN_TEXT + b"\x01", b"\xc1"],
    ids=["nothing", "text", "deep", "text inside", "text as a key", "no type"],
)
def test_bytes_that_are_no_value_are_one_error(data: bytes) -> None:
    for decode in (decode_any, decode_text, Decoder(list[str]).decode):
        with pytest.raises(msgspec.DecodeError):
            decode(data)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b'"\xff"', "[" * 100_000, '{"a": ' * 50_000])
def test_text_that_is_no_json_is_one_error(data: bytes | str) -> None:
    for decode in (decode_json, JsonDecoder(dict[str, str]).decode):
        with pytest.raises(msgspec.DecodeError):
            decode(data)
