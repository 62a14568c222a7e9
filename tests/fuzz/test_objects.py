"""Whatever bytes a peer sends a group that serves an object, no turn raises."""

import pytest
from tests.fuzz.objects import OBJECTS, fuzz

EACH = pytest.mark.parametrize(("stack", "kind"), OBJECTS)


@EACH
def test_wrong_frames_of_peers_of_an_object(stack: str, kind: str) -> None:
    fuzz(stack, kind, seed=3, inputs=150)


@pytest.mark.long
@EACH
def test_many_wrong_frames_of_peers_of_an_object(stack: str, kind: str) -> None:
    for seed in range(100, 104):
        fuzz(stack, kind, seed, inputs=600)
