"""The front of a group under viewstamped replication: what clients are told, and where to go.

Calls do not come this way. A client of transactions speaks to the cohorts as a process of its own
(`coterie.service.guests`); here it is made welcome, told who the cohorts are, and given reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.client.messages import News, Peer, Refusal, Reported
from coterie.service.describe import describe_methods, report_on_cohort

if TYPE_CHECKING:
    from coterie.client.messages import Ask, MethodReport, Report
    from coterie.service.caller import Caller
    from coterie.service.hosted_cohort import HostedCohort
    from coterie.service.port import ClientPort

_WHY = "this group takes transactions only: its clients need a release that knows them"


class CohortFront:
    """Speaks for all clients of one group at one cohort."""

    engine = "vsr"
    window_requests_max = 1
    """There are no sessions here."""

    def __init__(self, port: ClientPort, group: str) -> None:
        self.group = group
        self.callers: dict[int, Caller] = {}
        self._port = port
        self._hosted: HostedCohort | None = None
        self._methods: list[MethodReport] = []

    def attach(self, hosted: HostedCohort) -> None:
        """Speak for this cohort; before the port is opened."""
        self._hosted = hosted
        self._methods = describe_methods(hosted.definition)

    @property
    def hosted(self) -> HostedCohort:
        """The cohort behind the front."""
        assert self._hosted is not None, "a front is attached before its port is opened"
        return self._hosted

    @property
    def class_name(self) -> str:
        """What the group replicates."""
        return self.hosted.definition.name

    @property
    def majority(self) -> int:
        """How many cohorts it takes."""
        return self.hosted.configuration.majority

    @property
    def role(self) -> str:
        """What the cohort may do at present, in the words of `Role`."""
        return self.hosted.status.role.value

    def peers(self) -> list[Peer]:
        """The cohorts of the group, the preferred one first, and where they take clients."""
        in_view = {member.id for member in self.hosted.status.members}
        addresses = self._port.addresses
        return [
            Peer(id, addresses.get(id, ""), id in in_view)
            for id in self.hosted.configuration.members
        ]

    def add(self, caller: Caller) -> None:
        """Take a caller that has been made welcome."""
        self.callers[caller.number] = caller

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""
        self.callers.pop(caller.number, None)

    def receive(self, caller: Caller, ask: Ask, size: int) -> None:
        """Have reports given inside the next turn, and anything else refused."""

        def take() -> None:
            caller.taken(size)
            if caller.is_over:
                return
            for token in ask.reports:
                caller.tell(Reported(token, self._report()))
            refused = [(update.session, update.number) for update in ask.updates]
            refused += [(batch.session, batch.first) for batch in ask.batches]
            refused += [(0, token) for token in ask.opens]
            refused += [(0, query.token) for query in ask.queries]
            for session, request in refused:
                caller.refuse(Refusal(session, request, "", _WHY))

        self.hosted.call(take)

    def _report(self) -> Report:
        return report_on_cohort(
            self.hosted,
            replica=self._port.replica,
            incarnation=self._port.incarnation,
            methods=self._methods,
            peers=self.peers(),
        )

    def tell_news(self) -> None:
        """Tell all callers where the cohort and its peers stand."""
        if self._hosted is not None and self.callers:
            news = News(self.role, self.peers())
            for caller in self.callers.values():
                caller.tell(news)
