"""From running totals of interfaces to what went through between two samples.

Where bytes fall, or the agent numbers its samples anew, counting began anew: nothing is known of the time between, and
nothing is stored. The same holds for samples too far apart for a rate to mean much. Bytes have 64 bits and do not wrap;
errors and discards have 32, and do.
"""

from dataclasses import dataclass, field

import polars as pl

from cluster.model import Cluster, ExportProtocol
from ingest.read.counter_samples import (
    COUNTERS_32,
    COUNTERS_64,
    EXPORTER,
    INDEX,
    MOMENT,
    SAMPLE_SCHEMA,
    SEQ,
    SPEED,
)

_REORDERED = 16
"""A sample numbered up to this many before its predecessor was overtaken on its way; else the agent restarted."""

_WRAP = 1 << 32

LONGEST = 330
"""Samples further apart than this, in seconds, say nothing of the time between: agents tell every 20 s to 5 min."""

START = "start"
"""Column of `Deltas`: when the sample before was taken."""

_KEY = [EXPORTER, INDEX]
_BEFORE = "_before"


@dataclass(frozen=True, slots=True)
class Deltas:
    """What grew between consecutive samples of an interface.

    Attributes:
        frame: EXPORTER, INDEX, SPEED, ``start`` and MOMENT (epoch ms), and growth of each counter, null where unknown.
        counts: samples that gave nothing, by reason.
    """

    frame: pl.DataFrame
    counts: dict[str, int] = field(default_factory=dict)


class CounterDeltas:
    """Remembers the newest sample of each interface.

    Args:
        cluster: its exporters.

    Attributes:
        newest: the newest sample of each interface (SAMPLE_SCHEMA).
    """

    def __init__(self, cluster: Cluster) -> None:
        # pmacct 1.7.7 prints the first four bytes of an IPv6 agent's address as if they were an IPv4 address: agents
        # that share them cannot be told apart, and their totals would mix.
        self._mangled = [
            ".".join(map(str, exporter.address.packed[:4]))
            for exporter in cluster.exporters
            if exporter.protocol is ExportProtocol.SFLOW and exporter.address.version == 6
        ]
        self.newest = pl.DataFrame(schema=SAMPLE_SCHEMA)

    def known(self, samples: pl.DataFrame) -> pl.DataFrame:
        """Return the samples of agents that can be told apart."""
        return samples.filter(~pl.col(EXPORTER).is_in(self._mangled)) if self._mangled else samples

    def take(self, samples: pl.DataFrame) -> Deltas:
        """Return the growth that the samples show, and remember them.

        Args:
            samples: SAMPLE_SCHEMA, in the order of their arrival, of agents that can be told apart.
        """
        if samples.is_empty():
            return Deltas(pl.DataFrame())
        chain = _in_order(pl.concat([self.newest, samples.select(*SAMPLE_SCHEMA)]))
        counts = {"counters_out_of_order": self.newest.height + samples.height - chain.height}
        before = chain.select(pl.all().shift(1).over(_KEY).name.suffix(_BEFORE))
        pairs = pl.concat([chain, before], how="horizontal").filter(pl.col(f"{MOMENT}{_BEFORE}").is_not_null())
        newest = int(str(chain.get_column(MOMENT).max()))
        self.newest = chain.group_by(_KEY, maintain_order=True).last().select(*SAMPLE_SCHEMA)
        self.newest = self.newest.filter(pl.col(MOMENT) >= newest - LONGEST * 1000)

        length = pl.col(MOMENT) - pl.col(f"{MOMENT}{_BEFORE}")
        is_gap = ((length > LONGEST * 1000) | (length <= 0)).alias("is_gap")
        has_restarted = (pl.col(SEQ) < pl.col(f"{SEQ}{_BEFORE}")).alias("has_restarted")
        growth = [*(_grown(name) for name in COUNTERS_64), *(_grown(name, wraps=True) for name in COUNTERS_32)]
        pairs = pairs.with_columns(is_gap, has_restarted, *growth)
        # Where the bytes began anew, so did everything else.
        began_anew = pl.any_horizontal(
            pl.col(f"{name}{_BEFORE}").is_not_null() & pl.col(name).is_null() for name in COUNTERS_64
        )
        reset = pl.col("has_restarted") | began_anew
        counts["counters_gap"] = pairs.filter("is_gap").height
        counts["counters_reset"] = pairs.filter(~pl.col("is_gap") & reset).height
        frame = pairs.filter(~pl.col("is_gap") & ~reset).select(
            *_KEY, SPEED, pl.col(f"{MOMENT}{_BEFORE}").alias(START), MOMENT, *COUNTERS_64, *COUNTERS_32
        )
        return Deltas(frame, counts)


def _in_order(chain: pl.DataFrame) -> pl.DataFrame:
    """Leave out samples that were sent twice, or overtaken by later ones."""
    while True:
        ahead = pl.col(SEQ) - pl.col(SEQ).shift(1).over(_KEY)
        kept = chain.filter((ahead.is_between(-_REORDERED, 0)).not_().fill_null(True))
        if kept.height == chain.height:
            return kept
        chain = kept


def _grown(name: str, *, wraps: bool = False) -> pl.Expr:
    """Return a counter's growth; null if it began anew or was not counted."""
    before, now = pl.col(f"{name}{_BEFORE}"), pl.col(name)
    has_wrapped = (before >= _WRAP // 2) & (now < _WRAP // 2) if wraps else pl.lit(value=False)
    return pl.when(now >= before).then(now - before).when(has_wrapped).then(now - before + _WRAP).alias(name)
