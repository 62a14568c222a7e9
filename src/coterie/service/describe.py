"""What a replica says of its class and itself, for people and for callers without the class."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.configuration import changed
from coterie.kernel.views import NO_VIEW
from coterie.objects.classes import encodable
from coterie.objects.classes.methods import clip
from coterie.protocol.messages import MethodReport, Parameter, Report

if TYPE_CHECKING:
    from coterie.objects import Definition, Method
    from coterie.objects.classes.methods import Argument
    from coterie.protocol.messages import Peer
    from coterie.service.engines.hosted import HostedReplica


def describe_methods(definition: Definition) -> list[MethodReport]:
    """Describe all methods of a class, in the order of their names."""
    return [_method(definition.methods[name]) for name in sorted(definition.methods)]


def _method(method: Method) -> MethodReport:
    return MethodReport(
        name=method.name,
        kind=method.kind.value,
        parameters=[_parameter(argument) for argument in method.arguments],
        result=encodable.describe(method.result),
        documentation=inspect.getdoc(method.function) or "",
    )


def _parameter(argument: Argument) -> Parameter:
    return Parameter(
        name=argument.name,
        type=encodable.describe(argument.type),
        schema=_schema(argument.type),
        is_optional=argument.is_optional,
        default=clip(argument.default) if argument.is_optional else "",
    )


def _schema(type_: object) -> str:
    try:
        return msgspec.json.encode(msgspec.json.schema(type_)).decode()
    except (TypeError, RuntimeError):
        return ""  # a type that has no JSON form, such as a deque


def report_on(  # noqa: PLR0913 -- all by name
    hosted: HostedReplica,
    *,
    engine: str,
    replica: str,
    incarnation: int,
    methods: list[MethodReport],
    peers: list[Peer],
) -> Report:
    """Say where a replica stands at present."""
    status, definition = hosted.status, hosted.definition
    leader = None if status is None else status.leader
    return Report(
        group=hosted.group,
        class_name=definition.name,
        documentation=inspect.getdoc(definition.cls) or "",
        methods=methods,
        replica=replica,
        incarnation=incarnation,
        role="starting" if status is None else status.role.value,
        view=NO_VIEW if status is None else status.view,
        members=[] if status is None else [str(member) for member in status.members],
        peers=peers,
        position=hosted.position,
        settled=hosted.settled,
        is_zombie=status is not None and status.is_zombie,
        faults=list(hosted.faults),
        version=hosted.version,
        trouble=hosted.trouble,
        engine=engine,
        primary="" if leader is None else str(leader),
        details=hosted.details(),
        cannot_recover=hosted.cannot_recover,
        configuration=None
        if hosted.members_stay
        else msgspec.structs.replace(changed(hosted.configuration), addresses=()),
    )
