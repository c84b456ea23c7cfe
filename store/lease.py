"""A lease kept in the store: of several processes that do the same work, one leads, and the others stand by.

InfluxDB cannot compare and swap. But each process writes rows of its own only, and what is acknowledged is in every
later answer (of one server, not of a cluster of them). So whoever wants to lead writes a claim, and *then* looks: it
leads only if nobody else claims or leads. Of two claims at once the later look sees the other claim; of those that see
each other the lower name stays, the others take theirs back.

No clock is compared with another. A process is dead to others when its row has not changed for DEAD_SECONDS of *their*
clock, in which the store answered. It stops to lead LEADS_SECONDS after it began to write the last row that was
acknowledged in time. That clock goes on while a machine sleeps.
"""

import math
import secrets
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Self

import polars as pl

from app.errors import StoreError, UserError
from app.log import Log
from cluster.model import StoreSettings
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, newest
from store.points import WINDOW, encode

BEAT_SECONDS = 2.0
LEADS_SECONDS = 12.0
DEAD_SECONDS = 18.0
"""The difference to LEADS_SECONDS is what a request of the old leader has to come to its end."""

_PATIENCE, _POLL_SECONDS = 4.0, 0.1
_SHOWN_SECONDS = 86_400


class Standing(IntEnum):
    """Values of LEASE_STATE."""

    WAITS = 0
    CLAIMS = 1
    LEADS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """What a process last said of itself."""

    holder: str
    standing: int
    term: int
    session: str
    at: int

    @property
    def has_led(self) -> bool:
        """Whether it led in its term."""
        return self.term > 0 and self.standing != Standing.CLAIMS


def stored_leases(store: Store, work: str | None = None) -> dict[tuple[str, str], Row]:
    """Return the newest row of each process, by its work and name; of one work or of all."""
    asked = Select(schema.LEASE, schema.RAW).take(*map(newest, schema.LEASE.fields)).by(schema.WORK, schema.HOLDER)
    asked = asked if work is None else asked.where(is_in(schema.WORK, [work]))
    return {
        (one, name): Row(name, int(state), int(term), str(session), int(at))
        for _, one, name, state, term, session, at in store.rows(asked.between())
    }


def standing_of(store: Store, now: float) -> list[tuple[str, str, Standing, float]]:
    """Return work, name, standing, and seconds since it said so (by its clock), of each process of a day."""
    rows = {key: row for key, row in stored_leases(store).items() if now - row.at < _SHOWN_SECONDS}
    found = [(*key, Standing(row.standing), max(now - row.at, 0.0)) for key, row in rows.items()]
    return sorted(found, key=lambda one: (one[0], -one[2], one[3]))


def refuse_once(settings: StoreSettings) -> None:
    """Refuse a run that only does what there is: it would do the work of whoever leads a second time."""
    if settings.lease:
        raise UserError(
            "--once does not go with store.lease: another process may lead", "start it without, or set lease: false"
        )


class Lease:
    """Leads, or waits until it does. A context manager; where `store.lease` is off it always leads.

    Args:
        settings: of the store.
        work: what is led: the command's name.
        folder: of the process's state, which no other process of this machine has: part of its name.
        log: told who leads.
        stopping: the process is to end.

    Attributes:
        is_new: whether another one led since this one did: what it remembers is behind.
        name: of this process, among those that do the work.
    """

    def __init__(self, settings: StoreSettings, work: str, folder: Path, log: Log, stopping: threading.Event) -> None:
        self.stopping, self.is_new = stopping, False
        self._work, self._log, self._is_on = work, log, settings.lease
        self.name = f"{socket.gethostname()}:{folder.resolve()}"
        self._session = secrets.token_hex(8)
        self._store = Store(settings, patience=_PATIENCE)
        self._term = self._at = 0
        # The term that it leads in, and that in which the work was begun.
        self._led = self._taken = 0
        self._until = 0.0
        # Name -> its row, and since when it is the same.
        self._seen: dict[str, tuple[Row, float]] = {}
        self._told = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leading", daemon=True)

    def __enter__(self) -> Self:
        if self._is_on:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(2 * _PATIENCE)
        self._store.close()

    def leads(self) -> bool:
        """Whether this process may do the work now, without a break since `wait` returned."""
        return not self._is_on or (self._holds() and self._led == self._taken)

    @property
    def term(self) -> int:
        """The one in which this process led last."""
        return self._led

    @property
    def at(self) -> int:
        """When a process of this name last wrote a row, by clocks that may have been set back since."""
        return self._at

    def ends(self) -> bool:
        """Whether the work is to end: it does not lead any more, or the process is to end."""
        return self.stopping.is_set() or not self.leads()

    def stands_by(self) -> bool:
        """Whether it neither leads nor is to end."""
        return self._is_on and not self._holds() and not self.stopping.is_set()

    def wait(self, at_most: float = math.inf) -> bool:
        """Wait until this process leads, or so many seconds; False if it is to end."""
        until = _clock() + at_most
        while self.stands_by() and _clock() < until:
            self.stopping.wait(_POLL_SECONDS)
        self._taken = self._led
        return not self.stopping.is_set()

    def _holds(self) -> bool:
        return _clock() < self._until

    # -- its thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        held = False
        while not self._ending.is_set():
            try:
                self._step()
            except StoreError as error:
                # What was not seen to change may have changed.
                self._seen.clear()
                self._log.sparse("lease_unknown", work=self._work, why=" ".join(error.lines()))
            except Exception as error:  # noqa: BLE001 - a thread that ends would stand by for ever, and say nothing
                self._seen.clear()
                why = " ".join(f"{type(error).__name__}: {error}".split())
                self._log.sparse("lease_failed", work=self._work, why=why, hint="tried again; please report it")
            if held and not self._holds():
                self._log.warning("lease_lost", work=self._work, term=self._term)
                self._told = ""
            held = self._holds()
            self._ending.wait(BEAT_SECONDS)
        if self._holds():
            self._until = 0.0
            try:
                self._write(Standing.WAITS)
            except StoreError as error:
                self._log.warning("lease_kept", why=" ".join(error.lines()), until=f"{DEAD_SECONDS:g} s from now")

    def _step(self) -> None:
        """Say that this process lives, and lead if nobody else does."""
        rows = self._look()
        own = rows.get(self.name)
        if self._holds():
            if own is None or own.session != self._session or any(self._is_later(row) for row in rows.values()):
                self._until = 0.0
            else:
                self._renew()
            return
        rivals = self._rivals(rows.values())
        if rivals:
            self._stand_by(rivals)
        else:
            self._claim(rows)

    def _claim(self, rows: dict[str, Row]) -> None:
        before, began = self._term, _clock()
        rivals: list[Row] = []
        led = max((row for row in rows.values() if row.has_led), key=lambda row: row.term, default=None)
        self._term = max((row.term for row in rows.values()), default=0) + 1
        try:
            self._write(Standing.CLAIMS)
            while _clock() < began + LEADS_SECONDS:
                rivals = self._rivals(self._look().values())
                if not rivals:
                    before = self._led = self._term
                    self.is_new = led is not None and led.holder != self.name
                    self._log.line("leading", work=self._work, term=self._term, after=led.holder if led else "nobody")
                    # From before its claim on: were we held up since, others may have taken us for dead.
                    self._until = began + LEADS_SECONDS
                    self._renew()
                    return
                if any(row.standing == Standing.LEADS or row.holder <= self.name for row in rivals):
                    break
                self._ending.wait(_POLL_SECONDS)
        finally:
            self._term = before
        # A store that took longer than a claim holds told of nobody: claimed again at the next step.
        if rivals:
            self._stand_by(rivals)

    def _stand_by(self, rivals: list[Row]) -> None:
        leader = max(rivals, key=lambda row: (row.standing, row.term))
        if self._told != leader.holder:
            self._told = leader.holder
            self._log.line("standing_by", work=self._work, leader=leader.holder)
        # Never over the row of another process that has our name.
        if all(row.holder != self.name for row in rivals):
            self._write(Standing.WAITS)

    def _renew(self) -> None:
        began, until = _clock(), self._until
        self._write(Standing.LEADS)
        # What was acknowledged later may have come after somebody took us for dead.
        self._until = began + LEADS_SECONDS if _clock() < until else 0.0

    def _look(self) -> dict[str, Row]:
        rows = {name: row for (_, name), row in stored_leases(self._store, self._work).items()}
        now = _clock()
        for name, row in rows.items():
            if self._seen.get(name, (None, 0.0))[0] != row:
                self._seen[name] = row, now
        own = rows.get(self.name)
        if own is not None:
            self._at = max(self._at, own.at)
            self._term = self._term or own.term * own.has_led
        return rows

    def _rivals(self, rows: Collection[Row]) -> list[Row]:
        """Return who claims or leads, and lives. Who led before another one did is dead, or knows that it lost."""
        led = max((row.term for row in rows if row.has_led), default=0)
        return [
            row
            for row in rows
            if (row.standing == Standing.CLAIMS or (row.standing == Standing.LEADS and row.term == led))
            and row.session != self._session
            and _clock() - self._seen[row.holder][1] < DEAD_SECONDS
        ]

    def _is_later(self, row: Row) -> bool:
        return row.standing == Standing.LEADS and row.term > self._term

    def _write(self, standing: Standing) -> None:
        # A clock that is set back must not put a new row behind an old one.
        self._at = max(self._at + 1, int(time.time()))
        row = {
            WINDOW: self._at,
            schema.WORK: self._work,
            schema.HOLDER: self.name,
            schema.LEASE_STATE.name: int(standing),
            schema.LEASE_TERM.name: self._term,
            schema.LEASE_SESSION.name: self._session,
            schema.LEASE_AT.name: self._at,
        }
        self._store.write(encode(schema.LEASE, pl.DataFrame([row])), schema.RAW)


def _clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
