"""All that is told of one job from its samples, and as tables: what `clusterflow jobs show` prints and boards read."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.baseline import Ints
from analysis.detectors.roles.pair_roles import PairKind, Roles, roles_of
from analysis.detectors.roles.peers import Verdict, dead_rails, judge
from analysis.detectors.roles.step_times import Steps, steps_of
from analysis.detectors.roles.traffic import Traffic
from store import schema
from store.points import WINDOW


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a job. Without steps there are no roles: it is not known what pairs do.

    Attributes:
        traffic: its samples or records.
        steps, roles: None where they cannot be told.
        verdicts: the surest first.
    """

    traffic: Traffic
    steps: Steps | None
    roles: Roles | None
    verdicts: tuple[Verdict, ...]

    def nodes(self) -> pl.DataFrame:
        """Return a row a node, by stage: node, stage, pipeline and ring (their first nodes), nodes of its ring."""
        if self.roles is None:
            return pl.DataFrame(schema=dict.fromkeys(_NODE_COLUMNS, pl.String))
        names = np.array(self.traffic.nodes)
        size = np.bincount(self.roles.group)[self.roles.group]
        values = self.traffic.nodes, self.roles.stage, names[self.roles.chain], names[self.roles.group], size
        return pl.DataFrame(dict(zip(_NODE_COLUMNS, values, strict=True))).sort(_NODE_COLUMNS[1], _NODE_COLUMNS[0])

    def pairs(self) -> pl.DataFrame:
        """Return a row a kind of pair and way: kind, stage of the sender, stage of the receiver, pairs, bytes."""
        if self.roles is None:
            return pl.DataFrame(schema=dict.fromkeys(_PAIR_COLUMNS, pl.String))
        count = len(self.traffic.nodes)
        kinds = pl.DataFrame({
            "pair": self.roles.pairs.low * count + self.roles.pairs.high, schema.KIND: self.roles.pairs.kind,
        })  # fmt: skip
        stage = self.roles.stage
        sent = pl.DataFrame({
            "pair": self.traffic.pair, schema.SRC_STAGE: stage[self.traffic.src].astype(str),
            schema.DST_STAGE: stage[self.traffic.dst].astype(str), schema.ROLE_BYTES.name: self.traffic.sent,
        })  # fmt: skip
        ways = [schema.KIND, schema.SRC_STAGE, schema.DST_STAGE]
        return (
            sent.join(kinds, on="pair")
            .group_by(ways)
            .agg(pl.col("pair").n_unique().alias(_PAIR_COLUMNS[3]), pl.sum(schema.ROLE_BYTES.name).cast(pl.Int64))
            .sort(ways)
        )

    def matrix(self) -> pl.DataFrame:
        """Return the pairs, with a row also for stages that send each other nothing: its kind is none."""
        pairs = self.pairs()
        depth = 0 if self.roles is None else int(self.roles.stage.max()) + 1
        # There is none where all that communicate form a circle: it has no first stage.
        stages = pl.DataFrame({schema.SRC_STAGE: [str(stage) for stage in range(depth)]}, {schema.SRC_STAGE: pl.String})
        every = stages.join(stages.rename({schema.SRC_STAGE: schema.DST_STAGE}), how="cross")
        silent = every.join(pairs, on=[schema.SRC_STAGE, schema.DST_STAGE], how="anti")
        none = {schema.KIND: pl.lit("none"), **{field.name: pl.lit(0) for field in schema.JOB_PAIR.fields}}
        return pl.concat([pairs, silent.with_columns(**none).select(pairs.columns)], how="vertical_relaxed")

    def windows(self, seconds: int) -> pl.DataFrame:
        """Return a row a window in which steps ended: WINDOW, steps, median and longest length, share of exchange."""
        if self.steps is None:
            return pl.DataFrame(schema={WINDOW: pl.Int64})
        steps = self.steps
        length, exchange = pl.col(schema.STEP_LENGTH.name), pl.col(schema.EXCHANGE.name)
        return (
            pl.DataFrame({
                WINDOW: (steps.end // seconds * seconds).astype(np.int64), schema.STEP_LENGTH.name: steps.length,
                schema.EXCHANGE.name: (steps.end - steps.burst) / steps.length,
            })
            .group_by(WINDOW, maintain_order=True)
            .agg(
                pl.len().cast(pl.Int64).alias(schema.STEPS.name), length.max().alias(schema.STEP_LONGEST.name),
                length.median(), exchange.median(),
            )
        )  # fmt: skip

    def judged(self) -> pl.DataFrame:
        """Return a row a verdict, the surest first: blame, nodes, rail, share, confidence, evidence."""
        rows = [
            (str(one.blame), ", ".join(one.nodes), one.rail, one.share, one.sure, one.evidence)
            for one in self.verdicts
        ]  # fmt: skip
        kinds = (pl.String, pl.String, pl.Int64, pl.Float64, pl.Float64, pl.String)
        return pl.DataFrame(rows, schema=dict(zip(_VERDICT_COLUMNS, kinds, strict=True)), orient="row")


_NODE_COLUMNS = (schema.NODE, *(field.name for field in schema.JOB_ROLE.fields))
_PAIR_COLUMNS = (schema.KIND, schema.SRC_STAGE, schema.DST_STAGE, *(field.name for field in schema.JOB_PAIR.fields))
_VERDICT_COLUMNS = tuple(field.name for field in schema.JOB_VERDICT.fields)


def tell(traffic: Traffic, end: float) -> Told:
    """Return what packet samples tell of one job; `end`: of what was looked at, epoch seconds."""
    steps = steps_of(traffic)
    if steps is None:
        return tell_sums(traffic)
    roles = roles_of(traffic, steps)
    whole = _whole_steps(traffic, roles)
    if whole is not None and len(whole.length) < len(steps.length):
        steps, roles = whole, roles_of(traffic, whole)
    return Told(traffic, steps, roles, tuple(judge(traffic, steps, roles, end)))


def _whole_steps(traffic: Traffic, roles: Roles) -> Steps | None:
    """Return the steps by the first stage's exchange alone, the last one of a step.

    Where one pipeline ends long after the others, stages exchange one after the other: that is several bursts a step.
    """
    is_first = roles.stage == 0
    is_data = np.isin(roles.pairs.kind, (PairKind.DATA, PairKind.BOTH)) & is_first[roles.pairs.low]
    names = (roles.pairs.low * len(traffic.nodes) + roles.pairs.high)[is_data]
    return steps_of(traffic.where(np.isin(traffic.pair, names)))


def tell_sums(traffic: Traffic) -> Told:
    """Return what flow records tell of one job: rails that are dead, beside the rails of all its other nodes."""
    return Told(traffic, None, None, tuple(dead_rails(traffic, np.zeros(len(traffic.nodes), np.int64))))


def part_of(traffic: Traffic, nodes: Ints) -> Traffic:
    """Return what some nodes send to each other, with them alone; `nodes`: places, in order."""
    kept = traffic.where(np.isin(traffic.src, nodes) & np.isin(traffic.dst, nodes))
    src, dst = (np.searchsorted(nodes, side) for side in (kept.src, kept.dst))
    return Traffic(tuple(traffic.nodes[node] for node in nodes), kept.time, src, dst, kept.rail, kept.sent)
