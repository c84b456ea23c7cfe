"""Three weeks of what leaves an ordinary cluster, in a real InfluxDB, and thefts beside it."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from cluster.model import (
    Artefact,
    BridgeSettings,
    Cluster,
    Group,
    Node,
    NodeAddress,
    Retention,
    Role,
    Site,
    StoreSettings,
)
from store import schema
from store.influx import Store
from store.points import WINDOW, batches, columns

HOUR, DAY = 3_600, 86_400
NOW = 1_780_000_000 // HOUR * HOUR
"""20:00 UTC of Thursday, 2026-05-28: 22:00 in Amsterdam, where this cluster stands. Thefts begin then or later."""
PAST_DAYS, DAYS = 20, 35
BEGIN = NOW - PAST_DAYS * DAY
"""What the store holds begins here."""
MODEL = 140 * 10**9

TALK = (
    schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.OFF_HOURS,
    schema.INITIATOR,
)  # fmt: skip
COLUMNS = columns(*TALK, schema.BYTES)

Tags = dict[str, str]

_GROUPS = {
    "store": "models", "gpu": "training", "nas": "storage", "infer": "inference", "mgmt": "management", "user": "users",
}  # fmt: skip
_PACKET = 1_500


def month_of(url: str, database: str, state: str = ".", **changes: object) -> Cluster:
    """Return a cluster of model storage, training and a partner; Amsterdam time; three artefacts."""

    def nodes(group: str, prefix: str, names: list[str]) -> tuple[Node, ...]:
        return tuple(
            Node(name, group, (NodeAddress(ip_address(f"{prefix}.{number + 1}")),)) for number, name in enumerate(names)
        )

    found = Cluster(
        name="month",
        groups=(
            Group("models", "Model Storage", Role.MODEL_STORAGE, (ip_network("10.40.0.0/24"),)),
            Group("training", "GPU Training Nodes", Role.TRAINING, (ip_network("10.20.0.0/16"),)),
            Group("partner", "Partner Labs", Role.APPROVED_EXTERNAL, (ip_network("198.51.100.0/24"),)),
        ),
        site=Site(ZoneInfo("Europe/Amsterdam")),
        nodes=(
            *nodes("models", "10.40.0", ["store-1", "store-2"]),
            *nodes("training", "10.20.0", [f"gpu-{number}" for number in range(4)]),
        ),
        artefacts=(Artefact("adapter", 10**9), Artefact("llama-70b", 141 * 10**9), Artefact("llama-405b", 810 * 10**9)),
        store=StoreSettings(url=url, database=database),
        bridge=BridgeSettings(state=state),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def cluster_of(url: str, database: str) -> Cluster:
    """Return the same with checkpoint storage, inference, management and people; thresholds as they are by default."""
    plain = month_of(url, database)
    more = (
        Group("storage", "Checkpoints", Role.STORAGE, (ip_network("10.30.0.0/24"),)),
        Group("inference", "Inference", Role.INFERENCE, (ip_network("10.50.0.0/24"),)),
        Group("management", "Management", Role.MANAGEMENT, (ip_network("10.60.0.0/24"),)),
        Group("users", "Users", Role.CUSTOM, (ip_network("10.70.0.0/24"),)),
    )
    return replace(plain, groups=(*plain.groups, *more))


def talk(
    src: str, dst: str, *, answers: bool = False, service: str = "https", proto: str = "tcp", group: str = ""
) -> Tags:
    """Return a conversation; `answers`: the destination opened it, and the source replies; `group`: of the source."""
    group = group or _GROUPS.get(src.partition("-")[0], "training")
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    initiator = schema.BY_DESTINATION if answers else schema.BY_SOURCE
    return dict(zip(TALK, (src, group, dst, outside, proto, service, schema.NO, initiator), strict=True))


def sent(tags: Tags, windows: np.ndarray, volume: np.ndarray) -> pl.DataFrame:
    """Return rows of a conversation, COLUMNS."""
    frame = pl.DataFrame({WINDOW: windows.astype(np.int64), "bytes": volume.astype(np.int64)})
    return frame.with_columns(pl.lit(value).alias(name) for name, value in tags.items()).select(*COLUMNS)


def ordinary(*, busy: float = 1.0, seed: int = 11, days: int = 22) -> pl.DataFrame:
    """Return what leaves anyway: partners fetch 70 to 130 GB a day, 60 clients get 40 GB of answers.

    People send 30 to 50 GB a day, to other addresses each day; management a little telemetry.

    Args:
        busy: what clients have after the past, as a multiple; people a quarter as much more.
        seed: of the days.
        days: from BEGIN on.
    """
    rng, theirs = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    frames = []
    for day in range(days):
        start = BEGIN + day * DAY
        load = busy if day >= PAST_DAYS else 1.0
        for src in ("store-1", "store-2"):
            for number in range(3):
                begin = start + int(rng.integers(10 * HOUR, 16 * HOUR)) // 60 * 60
                windows = begin + np.arange(5) * 60
                frames.append(
                    sent(talk(src, f"198.51.100.{10 + number}"), windows, np.full(5, rng.uniform(12e9, 22e9) / 5))
                )
        for client in range(60):
            windows = start + rng.choice(1440, 24, replace=False) * 60
            volume = rng.uniform(0.5, 1.5, 24) * 40e9 / 60 / 24 * load
            server = f"infer-{client % 4}"
            frames.append(sent(talk(server, f"192.0.2.{client + 1}", answers=True, service="api"), windows, volume))
        crowd = theirs.uniform(0.75, 1.25) * (3 + load) / 4
        for number in range(8):
            windows = start + 8 * HOUR + theirs.choice(600, 40, replace=False) * 60
            tags = talk(f"user-{number}", f"2001:db8:{day:x}::{number}")
            frames.append(sent(tags, windows, theirs.uniform(0.75, 1.25, 40) * 5e9 / 40 * crowd))
        windows = start + np.arange(0, DAY, 600)
        frames.append(sent(talk("mgmt-1", "203.0.113.200"), windows, np.full(len(windows), 2e6)))
    return pl.concat(frames)


def stolen(
    pairs: Sequence[Tags],
    volume: float,
    seconds: int,
    *,
    delay: int = 0,
    bursts: int = 0,
    takes_turns: bool = False,
    rate: int = 1,
    seed: int = 0,
) -> pl.DataFrame:
    """Return what is sent in equal parts over pairs and time.

    Args:
        pairs: conversations.
        volume: bytes in all.
        seconds: from the first to the last.
        delay: seconds from NOW to the first.
        bursts: so many single minutes, evenly over the time; 0: all of it.
        takes_turns: one pair sends after the other.
        rate: of every so many packets one is seen, by chance.
        seed: of that chance.
    """
    windows = NOW + delay + np.arange(0, seconds, 60 if seconds <= 2 * HOUR else 300)
    if bursts:
        windows = NOW + delay + (np.arange(bursts) * seconds // bursts) // 60 * 60
    parts = np.array_split(windows, len(pairs)) if takes_turns else [windows] * len(pairs)
    count = sum(len(part) for part in parts)
    rng = np.random.default_rng(seed)
    frames = []
    for tags, part in zip(pairs, parts, strict=True):
        each = np.full(len(part), volume / count)
        if rate > 1:
            each = rng.poisson(each / (rate * _PACKET)) * float(rate * _PACKET)
        frames.append(sent(tags, part, each))
    return pl.concat(frames)


def put(cluster: Cluster, truth: pl.DataFrame) -> Store:
    """Store minutes in all three retentions, as rollups would hold them."""
    store = Store(cluster.store)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    add(store, truth)
    return store


def add(store: Store, truth: pl.DataFrame, shard: str = "0") -> None:
    """Store more, as a bridge of its own: nothing is written over."""
    summed = truth.group_by(WINDOW, *TALK).agg(pl.col("bytes").sum()).select(*COLUMNS)
    hours = (
        summed.with_columns(pl.col(WINDOW) // HOUR * HOUR).group_by(WINDOW, *TALK).agg(pl.col("bytes").sum())
    ).select(*COLUMNS)
    for retention, frame in ((schema.RAW, summed), (schema.MINUTE, summed), (schema.HOUR, hours)):
        rows = frame.sort(WINDOW).with_columns(pl.lit(shard).alias(schema.SHARD))
        for lines, _ in batches(schema.EGRESS, rows):
            store.write(lines, retention)
