"""Inventory sources asked beside the flows: each answer is kept, and a source that is away changes nothing."""

import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.csv_rows import IS_CUT
from app.errors import ClusterflowError
from app.log import Log
from app.words import lasting, one_line
from cluster.model import Cluster, InventorySource, Machine
from cluster.sections.network.kept_inventory import kept_file, text_of, write_whole
from cluster.sections.network.prefix_files import keep
from enrichment.list_states import NODES, prefix_readings
from enrichment.watched import FileReading

_LONGEST_NAME = 253
"""Characters: DNS has none that is longer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """How asking a source went.

    Attributes:
        machines: in the answer in use, an address each.
        at: when it last answered, epoch seconds; 0 if it never did.
        error: why the answer in use is an earlier one; empty if it is not.
        changed: whether it answered otherwise than before.
    """

    machines: int
    at: float
    error: str = ""
    changed: bool = False


def asked(one: InventorySource) -> list[Machine]:
    """Return what a source answers now; ClusterflowError where it does not, or lists nothing."""
    try:
        found: list[Machine] = importlib.import_module(f"enrichment.inventory.{one.kind}").ask(one)
    except ClusterflowError:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ClusterflowError(f"{place}: {error.msg.lower()}: expected JSON", IS_CUT) from error
    except Exception as error:  # whatever an answer does to a parser, what was known before holds
        said = f"{type(error).__name__}: {one_line(str(error))}"
        raise ClusterflowError(f"its answer cannot be read: expected what {one.kind} says", said) from error
    # Names come into files of ours, of which each line means something.
    found = [replace(machine, name=_named(machine.name), word=_named(machine.word)) for machine in found]
    found = [machine for machine in found if machine.name]
    if not any(machine.addresses for machine in found):
        raise ClusterflowError("it lists no address", "may it be read in full, and does DNS know its names?")
    return found


def _named(text: object) -> str:
    return one_line(text, _LONGEST_NAME) if isinstance(text, str) else ""


def refresh(one: InventorySource, folder: Path) -> Answered:
    """Ask a source, and keep its answer in a folder; OSError where that cannot be written."""
    path, now = kept_file(folder, one.name), time.time()
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    try:
        text, at, error = text_of(asked(one)), now, ""
    except ClusterflowError as fault:
        text, at, error = before, _told(path)[0], one_line("; ".join(fault.lines()))
    if text != before:
        write_whole(path, text)
    write_whole(path.with_suffix(".json"), json.dumps({"answered": at, "asked": now, "error": error}) + "\n")
    return Answered(max(text.count("\n") - 1, 0), at, error, text != before)


def _told(path: Path) -> tuple[float, str]:
    """Return when a source last answered, epoch seconds, and what was wrong when it was last asked."""
    try:
        told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return float(told["answered"]), str(told["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, ""


def configured_readings(cluster: Cluster, now: float) -> Iterator[FileReading]:
    """Yield how all is that cluster.yaml itself takes from elsewhere: files with prefixes, inventory sources.

    Who asks the sources on this host does not matter. Conflicts are what was skipped of an answer.

    Args:
        cluster: as it is in force.
        now: epoch seconds.
    """
    yield from prefix_readings(cluster, now)
    used = {one.name: one for one in cluster.sources}
    for one in cluster.inventory.sources:
        path = kept_file(cluster.inventory_folder, one.name)
        at, error = _told(path)
        if at and not error and now - at > 5 * one.every + 300:
            error = f"nobody asked it for {lasting(now - at)}: is `clusterflow ingest` running?"
        conflicts = used[one.name].conflicts if one.name in used else ()
        more = f" (and {len(conflicts) - 1:,} more: `clusterflow check`)" if len(conflicts) > 1 else ""
        note = f"{conflicts[0]}{more}" if conflicts else ""
        nodes = used[one.name].nodes if one.name in used else 0
        broken, place = bool(error) or not at, one.file or one.kind
        yield FileReading(
            one.name,
            NODES,
            path,
            nodes,
            at or None,
            place,
            len(conflicts),
            error or note,
            in_use=bool(at),
            broken=broken,
        )


class Watcher:
    """Has threads ask the sources of whatever cluster is in force, each after its `every`; keeps its files of prefixes.

    Args:
        log: told of answers that differ, and of sources that are away.
        clock: tells seconds.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        # By what cluster.yaml says of them: a source of which it says something else is asked at once.
        self._due: dict[InventorySource, float] = {}
        self._asking: dict[str, threading.Thread] = {}
        self._errors: dict[str, str] = {}
        self._seen: Cluster | None = None

    def look(self, cluster: Cluster) -> None:
        """Have those asked whose time has come; nobody waits for them. Call it often."""
        if cluster is not self._seen:
            self._seen = cluster
            files = [file for group in cluster.groups for file in group.files]
            for file in files:
                if file.error:
                    self._log.warning("prefixes_refused", why=file.error, in_force="its last good version")
            try:
                keep(files, cluster.prefixes_folder)
            except OSError as error:
                self._log.warning("prefixes_not_kept", why=error, hint="a restart needs the files as they are then")
        for one in cluster.inventory.sources:
            thread = self._asking.get(one.name)
            if self._clock() < self._due.get(one, 0) or (thread is not None and thread.is_alive()):
                continue
            self._due[one] = self._clock() + one.every
            place = one, cluster.inventory_folder
            # A daemon: nobody waits for one that does not answer.
            thread = threading.Thread(target=self._ask, args=place, name=f"inventory {one.name}", daemon=True)
            self._asking[one.name] = thread
            thread.start()

    def _ask(self, one: InventorySource, folder: Path) -> None:
        try:
            told = refresh(one, folder)
        except OSError as error:
            told = Answered(0, 0.0, f"{folder}: {error.strerror}")
        if told.error and self._errors.get(one.name) != told.error:
            self._log.warning("inventory_away", source=one.name, why=told.error, in_force="what it told before")
        elif told.changed or (not told.error and self._errors.get(one.name)):
            self._log.line("inventory_answered", source=one.name, addresses=told.machines)
        self._errors[one.name] = told.error
