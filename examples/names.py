"""A name service, as the paper has it: where things are, for whoever asks.

coterie serve names.py:Names --stack ONUS:SAFE:DYNSEQ:PVSYNC
python service_client.py 127.0.0.1:PORT bind printer 10.0.0.7:631
"""
# ruff: noqa: INP001 -- a program, not a package

from coterie import query, update


class Names:
    """Names and where they lead to."""

    places: dict[str, str]

    def __init__(self) -> None:
        self.places = {}

    @update
    def bind(self, name: str, place: str) -> str:
        """Let a name lead to a place; give where it led to before, or nothing."""
        before = self.places.get(name, "")
        self.places[name] = place
        return before

    @update
    def unbind(self, name: str) -> bool:
        """Forget a name; say whether it was there."""
        return self.places.pop(name, None) is not None

    @query
    def resolve(self, name: str) -> str:
        """Give where a name leads to, or nothing."""
        return self.places.get(name, "")

    @query
    def names(self) -> list[str]:
        """Give all names, in order."""
        return sorted(self.places)
