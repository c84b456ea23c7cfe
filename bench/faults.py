"""The faults that tests/faults, tests/kafka and tests/containers inject, and the table in docs/reference/faults.md."""

import fcntl
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "var" / "log" / "faults.json"
"""Where the suite leaves its results."""

Record = Callable[..., None]
"""Notes what a fault did, for docs/reference/faults.md: the fixture `record`."""

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
"""Lines of docs/reference/faults.md between which the table stands."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        id: what tests call it.
        text: what is done, for people.
    """

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a fault did to the totals.

    Attributes:
        fault: its id.
        trials: how often it was done.
        lost, doubled: bytes of traffic that the store had too little or too much at the end.
        counted: where the loss is counted; empty where nothing is.
    """

    fault: str
    trials: int
    lost: int
    doubled: int
    counted: str = ""


FAULTS = (
    Fault("bridge-killed", "bridge killed (-9) at random moments of one stream"),
    Fault("bridge-stopped", "bridge told to stop (SIGTERM, SIGINT) while the store is there, hangs or is away"),
    Fault("bridge-stopped-restoring", "bridge told to stop while it writes what a checkpoint holds"),
    Fault("stdin-stopped", "bridge on standard input told to stop while the store is away"),
    Fault("second-bridge", "a second bridge started on the same spool, or with the same state folder"),
    Fault("other-spool", "bridge started with another spool and the old state folder"),
    Fault("store-stopped", "InfluxDB stopped for a while"),
    Fault("store-slow", "InfluxDB behind a line that holds up every request"),
    Fault("store-refuses", "InfluxDB answers 500, 503, 429 with Retry-After, or a proxy answers in its place"),
    Fault("store-resets", "connection reset in the middle of a request, after it, or in the middle of an answer"),
    Fault("store-field-conflict", "field of another type is stored already: InfluxDB refuses these points"),
    Fault("store-series-limit", "InfluxDB's max-series-per-database is reached: it refuses new series"),
    Fault("store-disk-full", "disk full under InfluxDB's data"),
    Fault("state-disk-full", "disk full under the bridge's state"),
    Fault("analysis-disk-full", "disk full under the analysis' state"),
    Fault("collector-killed", "nfacctd killed (-9), started again by `clusterflow collect`"),
    Fault("collector-shared-killed", "one of two nfacctd that share a port killed (-9)"),
    Fault("killers-refused", "datagrams from a listed address with every element at 300 and 1,300 B, v9 and IPFIX"),
    Fault("killers", "the same, of elements that kill Debian's nfacctd 1.7.7, with `collector.guard: false`"),
    Fault("spool-disk-full", "disk full under the spool while nfacctd writes"),
    Fault("file-cut-before", "spool file cut off before it is read"),
    Fault("file-cut-after", "spool file cut off after it was read"),
    Fault("file-garbled", "bytes in the middle of a spool file overwritten, NUL bytes among them"),
    Fault("file-copied", "spool file copied under another name"),
    Fault("file-renamed", "spool files renamed while they are read"),
    Fault("file-disordered", "spool files in the wrong order, with times of the future in their names"),
    Fault("file-odd", "folders, pipes, empty files and broken archives among the spool files"),
    Fault("clock-set", "wall clock set an hour forwards, or back, while the bridge runs"),
    Fault("reload", "cluster.yaml changed and SIGHUP sent in the middle of a stream"),
    Fault("reload-broken", "SIGHUP with a broken cluster.yaml, or one that asks for what cannot change"),
    Fault("kafka-workers", "workers of a group join, are told to stop and killed (-9) in the middle of a stream"),
    Fault("kafka-broker-killed", "Kafka broker killed (-9) and started again in the middle of a stream"),
    Fault("kafka-worker-asleep", "worker held up (SIGSTOP) for longer than its session, and woken"),
    Fault("kafka-relay-killed", "relay and worker killed (-9) at random moments of one stream"),
    Fault(
        "containers-killed",
        "containers of InfluxDB, bridge and analysis killed, by `docker kill` and as the kernel does",
    ),
    Fault("containers-restarted", "all containers restarted, and made anew from their volumes"),
    Fault("containers-collector-killed", "nfacctd in its container killed, and the collector's container, twice"),
)
"""Every fault of the suite, in the order of the table."""


def note(path: Path, result: Result) -> None:
    """Write a result over the one of the same fault; several test processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = {**_parsed(file.read()), result.fault: result}
        file.truncate(0)
        json.dump([asdict(known[name]) for name in sorted(known)], file, indent=1)
        file.write("\n")


def read(path: Path) -> dict[str, Result]:
    """Return the results that the suite left, by fault."""
    return _parsed(path.read_text(encoding="utf-8"))


def _parsed(text: str) -> dict[str, Result]:
    return {row["fault"]: Result(**row) for row in json.loads(text or "[]")}


def table(results: Iterable[Result]) -> str:
    """Return the table: a row a fault that has a result."""
    known = {result.fault: result for result in results}
    lines = ["| fault | trials | bytes lost | bytes doubled | |", "|---|---:|---:|---:|---|"]
    for fault in FAULTS:
        if fault.id in known:
            one = known[fault.id]
            lines.append(f"| {fault.text} | {one.trials} | {one.lost:,} | {one.doubled:,} | {one.counted} |")
    return "\n".join(lines)


def rendered(document: str, results: Iterable[Result]) -> str:
    """Return a document with a new table."""
    head, _, rest = document.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{tail}"


def main(arguments: list[str]) -> None:
    """Write the suite's results into a document: ``python -m bench.faults docs/reference/faults.md``."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        sys.exit("usage: python -m bench.faults DOCUMENT, which must be there: docs/reference/faults.md")
    path = Path(arguments[0])
    path.write_text(rendered(path.read_text(encoding="utf-8"), read(RESULTS).values()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
