"""What a replica says of its class and itself, for people and for callers without the class."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import msgspec

from coterie.client.messages import MethodReport, Parameter, Report
from coterie.kernel.views import NO_VIEW
from coterie.objects import encodable
from coterie.objects.methods import clip

if TYPE_CHECKING:
    from coterie.client.messages import Peer
    from coterie.kernel.engine import Version
    from coterie.objects import Definition, Method, ObjectHost
    from coterie.objects.methods import Argument
    from coterie.service.hosted_cohort import HostedCohort


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
    *,
    group: str,
    replica: str,
    incarnation: int,
    host: ObjectHost,
    methods: list[MethodReport],
    peers: list[Peer],
    version: Version,
    trouble: str,
) -> Report:
    """Say where a replica stands at present."""
    status = host.standing
    return Report(
        group=group,
        class_name=host.definition.name,
        documentation=inspect.getdoc(host.definition.cls) or "",
        methods=methods,
        replica=replica,
        incarnation=incarnation,
        role="starting" if status is None else status.role.value,
        view=NO_VIEW if status is None else status.view,
        members=[] if status is None else [str(member) for member in status.members],
        peers=peers,
        position=host.position,
        settled=host.settled_position,
        is_zombie=status is not None and status.is_zombie,
        faults=list(host.faults),
        version=version,
        trouble=trouble,
    )


def report_on_cohort(
    hosted: HostedCohort,
    *,
    replica: str,
    incarnation: int,
    methods: list[MethodReport],
    peers: list[Peer],
) -> Report:
    """Say where a cohort stands at present."""
    status, cohort = hosted.status, hosted.cohort
    return Report(
        group=hosted.group,
        class_name=hosted.definition.name,
        documentation=inspect.getdoc(hosted.definition.cls) or "",
        methods=methods,
        replica=replica,
        incarnation=incarnation,
        role=status.role.value,
        view=status.view,
        members=[str(member) for member in status.members],
        peers=peers,
        position=status.position,
        settled=status.settled,
        is_zombie=status.is_zombie,
        faults=[],
        version=hosted.version,
        trouble=hosted.trouble,
        engine="vsr",
        primary=str(cohort.cur_view.primary) if cohort.is_active else "",
        viewstamp=str(cohort.log.last),
        transactions=hosted.transactions,
    )
