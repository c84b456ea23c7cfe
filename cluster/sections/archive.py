"""The section `archive`: what is kept of single conversations."""

from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG
from cluster.scalars.names import DAY

FREE_SHARE = 0.05
"""Of a disk: the archive gives way before it is fuller than that."""


# fmt: off
@record
class ArchiveSettings:
    """The flow archive: every record as Parquet on this disk, which `clusterflow flows` asks.

    The oldest hour goes first, also where less than 5 % of the disk are free.
    """

    enabled: bool = key(FLAG, "Whether the bridge and Kafka workers write it.", default=True)
    folder: str | None = key(names.PATH, "Where.", default=None, absent="the folder `archive` in `bridge.state`")
    keep: int = key(names.seconds(3600, 3660 * DAY), "How long.", default=7 * DAY)
    size: int = key(names.SIZE, "How much one bridge or worker keeps at most.", default=20 * 10**9)
    keep_samples: int = key(
        names.seconds(600, DAY), "How long a bridge keeps sFlow's single samples between training nodes, with their "
        "times in milliseconds: from these `clusterflow jobs show` tells roles and steps.", default=7200)
    samples_size: int = key(names.SIZE, "How much of these one bridge keeps at most.", default=2 * 10**9)


ARCHIVE = Section.of(ArchiveSettings, "archive")
# fmt: on
