"""An instance of the manager, running: it asks the management object and the agents.

Everything that is decided is decided by `coterie.manager.instance`; here are clocks and sockets. A
question that is not answered in time is told as such, and may have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from coterie.client import ClientSettings, connect
from coterie.kernel.errors import CoterieError
from coterie.manager.instance import CallManagement, Instance, ManagerReply
from coterie.manager.management import Entered, Management
from coterie.runtime.address import parse_address
from coterie.runtime.events import log
from coterie.service.manage.channel import AgentLink, NoAgent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.manager.instance import ManagerAsk, ManagerSettings
    from coterie.manager.orders import AgentAnswer, AgentOrder
    from coterie.manager.policy import Policy

TICK_SECONDS = 0.25
AGENT_SECONDS = 4.0
CALL_SECONDS = 4.0


class RunningManager:
    """One process of the manager."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        name: str,
        *,
        policy: Policy,
        addresses: Sequence[str],
        group: str,
        secret: bytes | None,
        agent_secret: bytes,
        settings: ManagerSettings | None = None,
    ) -> None:
        self.instance = Instance(name, settings)
        self._policy = policy
        self._addresses = list(addresses)
        self._group = group
        self._secret = secret
        self._agent_secret = agent_secret
        self._links: dict[str, AgentLink] = {}
        self._replies: list[ManagerReply] = []
        self._woken = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()
        self._told: tuple[object, ...] = ()
        self._bug: BaseException | None = None
        """What ended a question that should not have; it ends us."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Be an instance until told to stop; raises `CoterieError` if the policy is refused."""
        settings = ClientSettings(deadline=CALL_SECONDS)
        connecting: Any = connect(
            Management, self._addresses, group=self._group, secret=self._secret, settings=settings
        )
        async with connecting as management:
            await self._want(management)
            try:
                while not stopping.is_set():
                    if self._bug is not None:
                        raise self._bug
                    self._step(management)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), TICK_SECONDS)
                    self._woken.clear()
            finally:
                for each in self._asking:
                    each.cancel()
                await asyncio.gather(*self._asking, return_exceptions=True)
                for link in self._links.values():
                    await link.close()
                if self.instance.fence:
                    with contextlib.suppress(CoterieError):
                        await management.resign(self.instance.fence)

    async def _want(self, management: Any) -> None:  # noqa: ANN401 -- the object, as its clients see it
        """Put the policy in force, unless a later one is."""
        entered: Entered = await management.want.options(deadline=60.0)(self._policy)
        if entered.refusal and (
            entered.state.policy is None or entered.state.policy.number <= self._policy.number
        ):
            raise CoterieError(entered.refusal)
        if entered.refusal:
            log(logging.WARNING, "policy", reason=entered.refusal)

    def _step(self, management: Any) -> None:  # noqa: ANN401
        replies, self._replies = self._replies, []
        now = time.monotonic()
        for asked in self.instance.step(now, replies):
            task = asyncio.ensure_future(self._ask(management, asked))
            self._asking.add(task)
            task.add_done_callback(self._asked)
        self._tell(now)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._bug = task.exception()
            self._woken.set()

    async def _ask(self, management: Any, asked: ManagerAsk) -> None:  # noqa: ANN401
        answer: Entered | AgentAnswer | None = None
        try:
            if isinstance(asked.what, CallManagement):
                if asked.what.method in {"begin", "end", "start"}:
                    log(logging.INFO, asked.what.method, what=_worded(asked.what))
                call = getattr(management, asked.what.method)
                answer = await call(*asked.what.arguments)
                if answer is not None and answer.refusal and asked.what.method != "hold":
                    log(logging.INFO, "refused", what=asked.what.method, reason=answer.refusal)
            else:
                answer = await self._ask_agent(asked.host, asked.what)
        except NoAgent:
            pass
        except CoterieError as error:
            log(logging.WARNING, "no answer", what=_worded(asked.what), reason=str(error))
        self._replies.append(ManagerReply(asked.number, answer))
        self._woken.set()

    async def _ask_agent(self, host: str, order: AgentOrder) -> AgentAnswer:
        state = self.instance.state
        assert state is not None
        assert state.policy is not None
        if host not in state.policy.hosts:
            raise NoAgent(f"{host} is in the policy no more")
        address = parse_address(state.policy.hosts[host].agent)
        link = self._links.get(host)
        if link is None or link.address != address:
            link = self._links[host] = AgentLink(host, address, self._agent_secret)
        return await link.ask(order, seconds=AGENT_SECONDS)

    def _tell(self, now: float) -> None:
        """Log who acts, what is done and what is not, when that has changed."""
        instance = self.instance
        told = (
            instance.acts(now),
            instance.fence,
            tuple(sorted(instance.said.items())),
            tuple(sorted(instance.why_not.items())),
        )
        if told != self._told:
            self._told = told
            log(
                logging.INFO,
                "manager",
                instance=instance.name,
                acts=instance.acts(now),
                fence=instance.fence,
                doing=dict(instance.said),
                why_not=dict(instance.why_not),
            )


def _worded(what: CallManagement | AgentOrder) -> str:
    if isinstance(what, CallManagement):
        return f"{what.method} {' '.join(str(each)[:200] for each in what.arguments)}"
    return type(what).__name__
