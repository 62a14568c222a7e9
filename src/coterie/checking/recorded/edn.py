"""Reading EDN, the notation in which Jepsen writes its histories.

Maps, vectors, lists, sets, strings, numbers, keywords, symbols, nil, true and false become values
that can be compared and hashed: vectors and lists are tuples, sets frozen sets, maps tuples of
pairs except at the top, keywords texts with their colon. A tag (`#jepsen.history.Op{...}`) is left
out and what it stands before is taken; `#_` and comments are skipped, with what they hide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from coterie.checking.recorded.errors import NoHistory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["forms"]

DEPTH_MAX = 100

_TOKEN = re.compile(
    r"""
    (?P<space>[\s,]+|;[^\n]*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<character>\\(?:newline|space|tab|return|u[0-9a-fA-F]{4}|.))
    |(?P<discard>\#_)
    |(?P<open>\#\{|[\[({])
    |(?P<close>[\])}])
    |(?P<tag>\#[A-Za-z][\w.\-/]*)
    |(?P<word>[^\s,;"\\\[\](){}]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_INTEGER = re.compile(r"[+-]?\d+N?")
_FLOAT = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?M?")
_WORDS = {"nil": None, "true": True, "false": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_DISCARD = object()


class _Open:
    """A collection that is being read."""

    def __init__(self, bracket: str, line: int) -> None:
        self.bracket = bracket
        self.line = line
        self.values: list[Any] = []
        self.discards = 0


def forms(text: str) -> Iterator[tuple[int, Any]]:  # noqa: C901, PLR0912 -- a table of tokens
    """Give every form of *text* with the line it begins in; a vector of all of them is looked into.

    A form that is a map is a dictionary. Raises `NoHistory` where the text is no EDN.
    """
    is_wrapped = False
    stack: list[_Open] = []
    top = _Open("", 1)
    for token, kind, line in _tokens(text):
        if not stack and not is_wrapped and not top.values and token in ("[", "("):
            is_wrapped = True
            continue
        if is_wrapped and not stack and kind == "close":
            is_wrapped = False
            continue
        holder = stack[-1] if stack else top
        if kind == "open":
            if len(stack) >= DEPTH_MAX:
                raise NoHistory(f"more than {DEPTH_MAX} brackets inside each other", line)
            stack.append(_Open(token, line))
            continue
        if kind == "discard":
            holder.values.append(_DISCARD)
            continue
        if kind == "close":
            if not stack or _CLOSING[stack[-1].bracket] != token:
                raise NoHistory(f"'{token}' closes nothing", line)
            closed = stack.pop()
            holder = stack[-1] if stack else top
            value, begun = _collection(closed, is_top=not stack), closed.line
        else:
            value, begun = _atom(token, kind, line), line
        if holder.values and holder.values[-1] is _DISCARD:
            holder.values.pop()
            continue
        if stack:
            holder.values.append(value)
        else:
            top.values = [None]  # something was there
            yield begun, value
    if stack:
        raise NoHistory(f"'{stack[-1].bracket}' is never closed", stack[-1].line)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    position, line = 0, 1
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise NoHistory(f"cannot be read from {text[position : position + 20]!r} on", line)
        token, kind = found.group(), found.lastgroup
        assert kind is not None, "every alternative has a name"
        if kind not in ("space", "tag"):
            yield token, kind, line
        line += token.count("\n")
        position = found.end()


def _collection(closed: _Open, *, is_top: bool) -> Any:  # noqa: ANN401 -- any value
    values = closed.values
    if closed.bracket != "{":
        return frozenset(values) if closed.bracket == "#{" else tuple(values)
    if len(values) % 2:
        raise NoHistory("a map has a key without a value", closed.line)
    pairs = tuple(zip(values[::2], values[1::2], strict=True))
    return dict(pairs) if is_top else pairs


def _atom(token: str, kind: str, line: int) -> Any:  # noqa: ANN401 -- any value
    if kind == "string":
        return _ESCAPE.sub(_unescaped, token[1:-1])
    if kind == "character":
        return token[1:]
    if token in _WORDS:
        return _WORDS[token]
    try:
        if _INTEGER.fullmatch(token):
            return int(token.rstrip("N"))
        if _FLOAT.fullmatch(token):
            return float(token.rstrip("M"))
    except ValueError:
        raise NoHistory(f"the number {token[:20]}… is too long", line) from None
    return token


def _unescaped(found: re.Match[str]) -> str:
    letter = found.group(1)
    if len(letter) > 1:
        return chr(int(letter[1:], 16))
    return _ESCAPES.get(letter, letter)
