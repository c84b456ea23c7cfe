"""What a destination does with a batch, and how it says that it could not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from app.errors import ClusterflowError
from delivery.event import Document


class AwayError(ClusterflowError):
    """Nothing is known to have arrived: the same batch goes out again later.

    Args:
        message: what happened.
        hint: what to do; empty where it may pass by itself.
        retry_after: seconds for which the receiver asked to be left alone.
    """

    def __init__(self, message: str, hint: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class RefusedBatchError(ClusterflowError):
    """The receiver will never take this batch as it is, and does not say for which event."""


@contextmanager
def building() -> Iterator[None]:
    """Have what cannot be written as the receiver wants it count as refused.

    That is an event of a later version, in a spool that went back to this one. Around the building of a body only:
    whatever else fails may work later.

    Raises:
        RefusedBatchError: the events cannot be written.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedBatchError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Refusal:
    """An event that the receiver will never take, and its words."""

    event: Document
    reason: str


class Transport(Protocol):
    """One receiver. Used by one thread; a failed batch leaves nothing behind that the next one could suffer from."""

    most: int
    """Events that one batch may have: another number, perhaps, after each `send`."""

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch, in order; return what the receiver refused for good, when it has all the rest.

        Raises:
            AwayError: send all of it again.
            RefusedBatchError: send it again in parts.
        """

    def close(self) -> None:
        """Let go of connections and files."""
