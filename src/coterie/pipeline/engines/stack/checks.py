"""Every promise to groups of stacks, by name, with where it comes from and what it says.

The names are those under which violations are reported, here and in `coterie.checking`.
"""

from __future__ import annotations

from coterie.pipeline.engines.family import Check

_OF_VIEWS = (
    Check("validity", "objects 3.3.1", "every view that was installed had been proposed"),
    Check("self-inclusion", "objects 3.3.2", "who proposes or installs a view is in it"),
    Check("view causality", "objects 3.3.3", "ids of views rise along every life"),
    Check(
        "agreement on view ordering",
        "objects 3.3.4",
        "whoever installs the same two views installs them in the same order",
    ),
    Check(
        "agreement on successors",
        "objects 3.3.5",
        "views that follow each other at one member do so wherever both are installed",
    ),
    Check(
        "view atomicity",
        "objects 3.3.6",
        "who goes from one view to the next together delivered the same in between",
    ),
    Check(
        "strong prefix",
        "objects 3.4.1",
        "of two sequences delivered in one view, one is a prefix of the other",
    ),
    Check("transitional set", "transis 21", "those who are said to come along are those who did"),
    Check("transitional view", "transis 21", "one transitional view ends each regular one"),
    Check(
        "transitional agreement",
        "transis 23",
        "who goes on together delivers the same after the transitional view",
    ),
)

_OF_MESSAGES = (
    Check("integrity", "objects 3.3", "what is delivered was sent, in that view, and comes once"),
    Check("self-delivery", "objects 3.3", "who stays delivers its own messages"),
    Check("first in, first out", "objects 3.3", "messages of one sender keep their order"),
    Check("agreed delivery", "transis 20", "who goes on together delivered in the same order"),
    Check("safe delivery", "transis 20", "a safe message is delivered by all members or by none"),
)

_OF_ENGINES = (
    Check(
        "confirmed chain",
        "objects 4.1",
        "a majority accepted each primary view, and somebody of them the one before",
    ),
    Check(
        "counted rightly",
        "objects 4.2",
        "who accepts a primary view holds its whole initial history",
    ),
    Check("memory", "objects 4.2", "a replica that lost what it had settled says so"),
    Check(
        "authoritative majority",
        "objects 4.1",
        "what is called authoritative was accepted by a majority",
    ),
    Check("one authoritative entry", "objects 4.1", "no position has two authoritative entries"),
    Check(
        "authoritative for ever",
        "objects 4.1",
        "what is authoritative is never rolled back, and is in every later primary view",
    ),
    Check(
        "global ordering",
        "objects 5.4.1",
        "what replicas call authoritative are prefixes of one sequence",
    ),
    Check("active replication", "objects 3.4.2", "replicas with equal histories have equal states"),
    Check(
        "acknowledged means authoritative",
        "objects 5.1",
        "what a client was told to be authoritative is in the history, at that place",
    ),
    Check(
        "exactly once",
        "objects 5.1",
        "a request is executed at one place only, and its answers are of that place",
    ),
    Check(
        "replicated state machine",
        "objects 4.1.1",
        "running the history on a single object gives the states that the replicas had",
    ),
    Check(
        "linearizability",
        "objects 4.1",
        "running the history gives the answers that were given, and what ended before something "
        "else was asked for stands before it",
    ),
)

_OF_SERVERS = (
    Check(
        "RSP-1",
        "rsp 3.2",
        "in each view one replica is decided to synchronise a request, which is executed once",
    ),
    Check("RSP-2", "rsp 3.2", "of a request that is delivered one replica commits the output"),
)

VIEW_CHECK_NAMES = tuple(check.name for check in _OF_VIEWS)
MESSAGE_CHECK_NAMES = tuple(check.name for check in _OF_MESSAGES)
ENGINE_CHECK_NAMES = tuple(check.name for check in _OF_ENGINES)
SERVER_CHECK_NAMES = tuple(check.name for check in _OF_SERVERS)
"""Those of groups whose clients know nothing of replication; others have no verdict on them."""

CHECKS = {check.name: check for check in (*_OF_VIEWS, *_OF_MESSAGES, *_OF_ENGINES, *_OF_SERVERS)}
"""All checks of stacks, in the order in which they are reported."""
