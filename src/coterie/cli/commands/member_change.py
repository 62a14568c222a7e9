"""What `coterie add`, `remove` and `replace` do: ask a replica, and watch what comes of it.

A change is asked of a replica in the primary view, over the control socket in its folder; so the
command is given on a machine where one runs. What was taken goes on by itself if the command is
interrupted: the steps are entries of the group's history.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from coterie.cli import exits
from coterie.cli.errors import UsageError
from coterie.kernel.errors import CoterieError, Refused

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coterie.cli.target import KnownGroup
    from coterie.kernel.views import ChangedConfiguration
    from coterie.service.operate.control import Admit, Dismiss, ProcessSeen
    from coterie.service.operate.overview import Overview

DEADLINE_SECONDS = 600.0
"""How long a change may take before the command stops watching it."""
LOOK_SECONDS = 0.1
ANSWER_SECONDS = 3.0
"""How long a replica may take to answer."""
START_SECONDS = 30.0
"""How long a newcomer may take to start."""
PATIENCE_SECONDS = 10.0
"""How long the group may be between two views before it is said that nobody takes the change."""


class NotYet(CoterieError):
    """The change was taken, and is not done by the deadline; it goes on."""


def change(args: argparse.Namespace, do: Callable[[MemberChange], str]) -> int:
    """Run a change to its end; give the exit status that says what came of it."""
    try:
        return _say(args, do(MemberChange(args)), exits.DONE)
    except Refused as refusal:
        return _say(args, str(refusal), exits.NOT_DONE)
    except NotYet as pending:
        return _say(args, str(pending), exits.UNKNOWN)
    except CoterieError as error:
        raise UsageError(str(error)) from None


def _say(args: argparse.Namespace, sentence: str, status: int) -> int:
    if args.json:
        import json  # noqa: PLC0415

        print(json.dumps({"is_done": status == exits.DONE, "text": sentence}))
    else:
        print(f"coterie: {sentence}", file=sys.stdout if status == exits.DONE else sys.stderr)
    return status


class MemberChange:
    """One run of a command that changes the members of a group."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._deadline = time.monotonic() + args.deadline
        self._told = ""
        self.target = self._find()

    def _find(self) -> KnownGroup:
        from coterie.cli.target import find_target  # noqa: PLC0415 -- start-up stays fast

        return find_target(self._args)

    # ---- the two changes

    def add(self, id: str) -> str:
        """Have a newcomer join; give its id when it is a member."""
        now = self._configuration(self._look())
        if id in now.everyone:
            raise Refused(f"{id} belongs to the group already; it has {', '.join(now.everyone)}")
        if id in now.gone:
            raise Refused(
                f"{id} was removed from the group, and ids are never used again: choose another"
            )
        if now.before:
            raise Refused("the members are being changed: wait until that is done, then ask again")
        if self.target.folder is None:
            self._check_in_file(id)
        else:
            id = self._put_up(id)
        try:
            self._wait_until_it_answers(id)
            self._ask(self._admission(id))
        except CoterieError:
            self._take_down(id)
            raise
        self._wait(
            lambda now: id in now.members and not now.before,
            lambda seen, now: self._progress(id, seen, now),
            f"{id} is on its way into the group, and becomes a member when it knows all",
        )
        self._change_locations(id, self._admission(id))
        return id

    def remove(self, id: str) -> None:
        """Have the group go on without a member, or a learner."""
        from coterie.service.operate.control import Dismiss  # noqa: PLC0415

        now = self._configuration(self._look())
        if id in now.gone:
            raise Refused(f"{id} was removed from the group before")
        if id not in now.everyone:
            raise Refused(f"{id} does not belong to the group; it has {', '.join(now.everyone)}")
        if now.members == (id,):
            raise Refused(
                f"{id} is the last member: coterie stop {self.target.group} ends the group instead"
            )
        self._ask(Dismiss(self.target.group, id))
        self._wait(
            lambda now: id in now.gone,
            lambda _seen, now: f"{id}: being removed" if now.before else "",
            f"the group is on its way to go on without {id}",
        )
        self._change_locations(id, Dismiss(self.target.group, id))
        self._wait_until_it_has_ended(id)
        self._take_down(id)

    # ---- asking

    def _ask(self, order: Admit | Dismiss) -> None:
        """Ask replicas on this machine until one in the primary view has said yes or no."""
        from pathlib import Path  # noqa: PLC0415

        from coterie.service.operate.control import NobodyThere, give_order  # noqa: PLC0415

        config = self.target.config
        assert config is not None, "the command takes no address"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            primaries = [each.id for each in self._look().replicas if each.is_primary]
            here = 0
            for id in config.everyone(self.target.group):
                try:
                    answer = give_order(Path(config.replicas[id].dir), order)
                except NobodyThere:
                    continue
                here += 1
                if answer.is_done:
                    return
                if id in primaries and "not in a primary view" not in answer.text:
                    raise Refused(answer.text)
            if not here:
                raise Refused(
                    "no replica of the group runs on this machine: give the command where one does"
                )
            if time.monotonic() > deadline:
                raise Refused(
                    "no replica on this machine is in a primary view: coterie status "
                    f"{self.target.again()} says why"
                )
            time.sleep(LOOK_SECONDS)

    def _change_locations(self, id: str, order: Admit | Dismiss) -> None:
        """Have the location service change with the processes of the deployment, if it has one."""
        from pathlib import Path  # noqa: PLC0415

        import msgspec  # noqa: PLC0415

        from coterie.ready.locations import LOCATIONS  # noqa: PLC0415
        from coterie.service.operate.control import NobodyThere, give_order  # noqa: PLC0415

        config = self.target.config
        assert config is not None, "the command takes no address"
        groups = config.groups_at(id).keys()
        if LOCATIONS not in groups or groups - {LOCATIONS, self.target.group}:
            return  # it lives on there for other groups, or was there for them
        order = msgspec.structs.replace(order, group=LOCATIONS)
        deadline = time.monotonic() + PATIENCE_SECONDS
        why = "no replica answers"
        while True:
            for each in config.replicas.values():
                try:
                    answer = give_order(Path(each.dir), order)
                except NobodyThere:
                    continue
                if "not in a primary view" not in answer.text:
                    why = answer.text
                # A command that was interrupted may have done it before.
                if answer.is_done or "belong" in answer.text or "was removed" in answer.text:
                    return
            if time.monotonic() > deadline:
                raise NotYet(
                    f"{id}: done, but for the location service ({why}); give the command again"
                )
            time.sleep(LOOK_SECONDS)

    def _admission(self, id: str) -> Admit:
        from coterie.service.operate.control import Admit  # noqa: PLC0415

        config = self.target.config
        assert config is not None, "the command takes no address"
        replica = config.replicas[id]
        return Admit(self.target.group, id, str(replica.peer_address), str(replica.client_address))

    # ---- looking

    def _look(self) -> Overview:
        from coterie.cli.commands.status import see  # noqa: PLC0415

        return see(self.target, deadline=ANSWER_SECONDS)

    def _configuration(self, seen: Overview) -> ChangedConfiguration:
        now = seen.configuration
        if now is not None and now.members and seen.serves:
            return now
        if seen.up and now is None:
            raise Refused(
                "the members of this group do not change while it serves: its engine cannot do that"
            )
        raise Refused(
            "the group does not serve, so nobody can decide who belongs to it: coterie status "
            f"{self.target.again()} says what to do"
        )

    def _wait(
        self,
        is_done: Callable[[ChangedConfiguration], bool],
        tell: Callable[[Overview, ChangedConfiguration], str],
        pending: str,
    ) -> None:
        while True:
            seen = self._look()
            now = seen.configuration
            if now is not None:
                self._tell(tell(seen, now))
                if is_done(now):
                    return
            if time.monotonic() > self._deadline:
                raise NotYet(
                    f"{pending}; coterie members {self.target.again()} shows how far it is"
                )
            time.sleep(LOOK_SECONDS)

    @staticmethod
    def _progress(id: str, seen: Overview, now: ChangedConfiguration) -> str:
        if id in now.members:
            return f"{id}: promoted"
        if id not in now.learners:
            return ""
        replica = next((each for each in seen.replicas if each.id == id), None)
        if replica is None or replica.report is None:
            return f"{id}: admitted, and does not answer at present"
        fetched = replica.report.details.get("fetched")
        state = f", {fetched} of state" if fetched else ""
        return f"{id}: learning{state}, at {replica.report.position} of {seen.position}"

    def _tell(self, line: str) -> None:
        if line and line != self._told and not self._args.json:
            print(line, flush=True)
        self._told = line or self._told

    # ---- newcomers and who was removed, where `coterie serve` runs them

    def _check_in_file(self, id: str) -> None:
        config, group = self.target.config, self.target.group
        assert config is not None, "the command takes no address"
        if not id:
            raise UsageError("which replica is to join? Give its id, as the file has it")
        if id not in config.replicas or group not in config.replicas[id].joins:
            raise UsageError(
                f"the file has no replica {id!r} that joins {group!r}: add [replicas.{id}] with "
                f'its addresses, its dir and joins = ["{group}"], and start it'
            )

    def _put_up(self, id: str) -> str:
        """Have the supervisor start a newcomer."""
        from coterie.service.operate.control import NobodyThere, PutUp, give_order  # noqa: PLC0415

        folder = self.target.folder
        assert folder is not None, "it is served here"
        try:
            answer = give_order(folder, PutUp(self.target.group, id))
        except NobodyThere:
            raise Refused(self.target.how_to_serve()) from None
        if not answer.is_done:
            raise Refused(answer.text)
        self.target = self._find()  # the file has changed
        return answer.text

    def _take_down(self, id: str) -> None:
        """Have the supervisor forget a replica, if it runs it."""
        from coterie.service.operate.control import NobodyThere, TakeDown, give_order  # noqa: PLC0415

        if self.target.folder is not None:
            try:
                give_order(self.target.folder, TakeDown(self.target.group, id))
            except NobodyThere:
                raise Refused(self.target.how_to_serve()) from None

    def _wait_until_it_answers(self, id: str) -> None:
        config = self.target.config
        assert config is not None, "the command takes no address"
        address = str(config.replicas[id].client_address)
        deadline = time.monotonic() + (0 if self.target.folder is None else START_SECONDS)
        while True:
            seen = {each.id: each for each in self._look().replicas}
            replica = seen.get(id)
            if replica is not None and replica.report is not None:
                return
            if replica is not None and replica.process is not None:
                self._check_process(replica.process)
            if time.monotonic() > deadline:
                silence = "" if replica is None else f" ({replica.silence})"
                raise Refused(
                    f"{id} does not answer at {address}{silence}: start it first, with coterie "
                    f"replica --config FILE --id {id}"
                )
            time.sleep(LOOK_SECONDS)

    @staticmethod
    def _check_process(process: ProcessSeen) -> None:
        if process.state == "given up":
            raise Refused(f"{process.id} cannot be started: {process.reason}")

    def _wait_until_it_has_ended(self, id: str) -> None:
        """Let a replica that was removed find that out, where its supervisor can be asked."""
        from coterie.cli.target import processes_of  # noqa: PLC0415

        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.target.folder is not None and time.monotonic() < deadline:
            processes = {each.id: each for each in processes_of(self.target) or []}
            if id not in processes or processes[id].state != "running":
                return
            time.sleep(LOOK_SECONDS)
