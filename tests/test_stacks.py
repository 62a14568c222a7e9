"""Stacks: the right ones are built, the wrong ones refused in one sentence."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.surroundings import bare_context

from coterie.kernel.errors import StackError
from coterie.kernel.layers import Layer, Service
from coterie.membership.vsync import Vsync
from coterie.simulation.engines.stack.replica import Inbox
from coterie.stacks import ENGINE_STACKS, LAYERS, OBJECT_STACKS, STACKS, build, parse_stack

GROUP_COMMUNICATION = {name: LAYERS[name] for name in ("VSYNC", "DYNSEQ", "TOKEN")}


def refusal(stack: str, layers: dict[str, type[Layer]] = GROUP_COMMUNICATION) -> str:
    with pytest.raises(StackError) as caught:
        parse_stack(stack, layers)
    return str(caught.value)


def is_one_sentence(text: str, stack: str) -> bool:
    return (
        text.startswith(repr(stack))
        and "\n" not in text
        and ". " not in text
        and not text.endswith(".")
    )


@pytest.mark.parametrize("stack", STACKS)
def test_a_right_stack_is_built_top_first(stack: str) -> None:
    context, _ = bare_context()
    replica = build(stack, context, Inbox())
    assert ":".join(layer.name for layer in replica.layers) == stack
    for upper, lower in pairwise(replica.layers):
        assert upper.below is lower
        assert lower.above is upper


def test_a_stack_may_be_written_in_small_letters() -> None:
    assert parse_stack("token:vsync") == parse_stack("TOKEN:VSYNC")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_of_all_combinations_only_those_listed_are_built(length: int) -> None:
    names = [*GROUP_COMMUNICATION, ""]
    for chosen in product(names, repeat=length):
        stack = ":".join(chosen)
        if stack in STACKS:
            assert [layer.name for layer in parse_stack(stack)] == list(chosen)
        else:
            assert is_one_sentence(refusal(stack), stack)


@pytest.mark.parametrize(
    ("stack", "sentence"),
    [
        pytest.param(
            "DYNSEQ:TOKEN:VSYNC",
            "'DYNSEQ:TOKEN:VSYNC' cannot work: DYNSEQ needs reliable multicast, first in first out "
            "per sender, which nothing below it gives; VSYNC does, for example DYNSEQ:VSYNC",
            id="missing-service",
        ),
        pytest.param(
            "TOKEN",
            "'TOKEN' has no layer at its bottom: it must end in VSYNC, for example TOKEN:VSYNC",
            id="no-bottom",
        ),
        pytest.param(
            "VSYNC:VSYNC",
            "'VSYNC:VSYNC' has VSYNC above other layers: it goes at the bottom, for example "
            "TOKEN:VSYNC",
            id="bottom-on-top",
        ),
        pytest.param(
            "TOKN:VSYNC",
            "'TOKN:VSYNC' names no layer 'TOKN'; the layers are DYNSEQ, TOKEN, VSYNC, written top "
            "first, for example TOKEN:VSYNC",
            id="unknown",
        ),
        pytest.param(
            "",
            "'' names no layer ''; the layers are DYNSEQ, TOKEN, VSYNC, written top first, for "
            "example TOKEN:VSYNC",
            id="empty",
        ),
    ],
)
def test_a_wrong_stack_is_told_what_is_wrong(stack: str, sentence: str) -> None:
    assert refusal(stack) == sentence


@pytest.mark.parametrize(
    ("stack", "sentence"),
    [
        pytest.param(
            "SAFE:PVSYNC",
            "'SAFE:PVSYNC' (SAFE:PRIMARY:VSYNC) cannot work: PRIMARY needs total order, which "
            "nothing below it gives; DYNSEQ or TOKEN does, for example SAFE:DYNSEQ:PVSYNC",
            id="shorthand",
        ),
        pytest.param(
            "SAFE:UNION:VSYNC",
            "'SAFE:UNION:VSYNC' cannot work: SAFE needs",
            id="no-order-in-the-history",
        ),
        pytest.param("RAFT", "'RAFT' names no layer 'RAFT'; the layers are ", id="unknown"),
    ],
)
def test_what_is_advised_can_be_built(stack: str, sentence: str) -> None:
    """Layers are named as they are, also where shorthand was written, and the example is right."""
    told = refusal(stack, dict(LAYERS))
    assert told.startswith(sentence)
    assert parse_stack(told.rpartition("for example ")[2])


@pytest.mark.parametrize("wrong", ["RAFT", "RAFT:VSYNC", "UNION", "SAFE", "TOKEN", "VSYNC:VSYNC"])
@pytest.mark.parametrize("examples", [STACKS, ENGINE_STACKS, OBJECT_STACKS])
def test_what_is_advised_is_what_the_caller_takes(wrong: str, examples: tuple[str, ...]) -> None:
    """`coterie member` advised a stack that it refuses itself."""
    with pytest.raises(StackError) as refused:
        parse_stack(wrong, examples=examples)
    assert str(refused.value).rpartition("for example ")[2] in examples


def test_what_cannot_be_shown_is_not_shown_as_it_is() -> None:
    """A tab or an escape in a stack's name went to the terminal."""
    assert refusal("SAFE:TO\tKEN:PVSYNC", dict(LAYERS)).isprintable()


def test_the_bottom_is_whatever_layer_needs_nothing() -> None:
    class Rock(Vsync):
        name = "ROCK"

    layers = {**GROUP_COMMUNICATION, "ROCK": Rock}
    assert "it must end in ROCK or VSYNC" in refusal("TOKEN", layers)
    context, _ = bare_context()
    replica = build("TOKEN:ROCK", context, Inbox(), layers)
    assert type(replica.bottom) is Rock
    assert context.stack == "TOKEN:ROCK"


services = st.frozensets(st.sampled_from(Service))


@given(st.lists(st.tuples(services.filter(bool), services), max_size=3), services)
@settings(max_examples=60)
def test_a_missing_service_is_named_with_the_layer_that_needs_it(
    upper: list[tuple[frozenset[Service], frozenset[Service]]], given_by_bottom: frozenset[Service]
) -> None:
    """Any layers with any needs: a stack is right if each finds all it needs right below it."""

    class Bottom(Layer):
        name = "BOTTOM"
        gives = given_by_bottom

    layers: dict[str, type[Layer]] = {"BOTTOM": Bottom}
    for place, (needed, offered) in enumerate(upper):
        layers[f"L{place}"] = type(
            f"L{place}", (Layer,), {"name": f"L{place}", "needs": needed, "gives": offered}
        )
    names = [f"L{place}" for place in range(len(upper))]
    stack = ":".join([*names, "BOTTOM"])
    provided = [*(offered for _, offered in upper[1:]), given_by_bottom]
    lacking = {
        name: needed - below
        for name, (needed, _), below in zip(names, upper, provided, strict=False)
    }
    wrong = [name for name in names if lacking[name]]
    if not wrong:
        assert parse_stack(stack, layers) == [layers[name] for name in [*names, "BOTTOM"]]
        return
    sentence = refusal(stack, layers)
    lowest = wrong[-1]
    assert any(
        f"{lowest} needs {service.value}, which nothing below it gives" in sentence
        for service in lacking[lowest]
    )
    assert is_one_sentence(sentence, stack)
