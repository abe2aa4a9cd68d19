# SPDX-License-Identifier: Apache-2.0
"""A base for stages whose inputs belong together in time: override `together`, and the rest of the contract is kept.

Messages of all inputs go through a join as the pipeline's `sync` says; what makes no set is released, counted by port
and told in DONE. It converts nothing and waits for no single port.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from dpfedge.errors import StageError
from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.each import Each, Inbox
from dpfedge.stage.join import Join, Sync

__all__ = ["Sets", "join_message"]


class Sets(Each):
    """A stage of one set of messages after the other."""

    sync: Sync | None = None
    """How the inputs belong together; whoever makes the stage sets it from the pipeline, which must say it."""

    def together(self, io: RequestIO, found: Mapping[str, Message]) -> Steps:
        """Treat one set, port → message; they stay valid until this ends, and are released by whoever called."""
        raise NotImplementedError

    def request(self, io: RequestIO) -> Steps:
        """Sets in the order of the lead's times, until every input has ended. StageError without a `sync`."""
        if self.sync is None:
            remedy = "add sync: {lead: PORT} to it in the pipeline"
            raise StageError("nobody says how its inputs belong together", stage=self.name, remedy=remedy)
        join: Join[Message] = self.sync.join(sorted(io.inputs))
        try:
            count = yield from self._sets(io, join)
            join.close()
            dropped = {port: row.dropped for port, row in join.counts.items() if row.dropped}
            yield from self.ended(io, lambda: {"messages": count, "dropped": dropped})
        finally:
            join.close()

    def _sets(self, io: RequestIO, join: Join[Message]) -> Generator[Wait, None, int]:
        inbox, count = Inbox(io), 0
        try:
            while inbox.open:
                message = inbox.next()
                if message is None:
                    yield Wait.INPUT
                    continue
                self._put(io, join, message, inbox)
                while (found := join.take()) is not None:
                    count += 1
                    yield from self.together(io, found) or ()
                    yield Wait.STEP
                yield from self.flush_when_due(io, inbox)
        finally:
            inbox.close()
        return count

    def _put(self, io: RequestIO, join: Join[Message], message: Message, inbox: Inbox) -> None:
        if message.kind is not Kind.DATA or io.cancelled(message.turn):
            inbox.mark(message)
            if message.kind is Kind.END:
                join.end(message.port)
            message.release()
            return
        join_message(join, message, self.name)


def join_message(join: Join[Message], message: Message, stage: str) -> None:
    """Give a message to the join; StageError of `stage` when it has no place in time, and then it is released."""
    try:
        join.put(message.port, message)
    except StageError as error:
        message.release()
        raise StageError(
            error.what, stage=stage, where=f"stage {stage}: {error.where}", found=error.found,
            allowed=error.allowed, remedy=error.remedy,
        ) from error  # fmt: skip
