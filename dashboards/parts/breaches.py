"""What breaks the cluster's segmentation, as questions and panels that two boards share."""

from dataclasses import dataclass

from cluster.model import Cluster
from dashboards import panels
from dashboards import variables as var
from dashboards.links import Link, to_board
from dashboards.palette import QUIET
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import ends
from store import schema
from store.influxql import Condition, Query, Select, Unit, compare, highest, is_in, top_rows, total
from store.schema import Breach

BREACH_TITLES = {
    Breach.SEGMENTATION: "not allowed",
    Breach.SHADOW: "shadow node",
    Breach.WRONG_PLANE: "storage on compute plane",
    Breach.MANAGEMENT: "unexpected management",
}
"""Words for people, by kind."""

_LARGEST, _MOST_FLOWS = "largest", "most flow records"


@dataclass(frozen=True, slots=True)
class Alerting:
    """From when on the findings of one kind are an alert, as its rule has it.

    Attributes:
        measure: summed up over `thresholds.violation_window`.
        limit: what is above it alerts.
        flows: so many flow records alert, whatever their bytes; None where they do not count.
        labels: each combination of their values is judged by itself.
    """

    measure: schema.Field
    limit: int
    flows: int | None = None
    labels: tuple[str, ...] = tuple(tag for tag in schema.BREACH.tags if tag != schema.KIND)


def alerting(cluster: Cluster, kind: Breach) -> Alerting:
    """Return from when on a kind alerts."""
    limits = cluster.thresholds
    match kind:
        case Breach.SEGMENTATION:
            return Alerting(schema.BYTES, limits.violation_bytes, limits.violation_flows)
        case Breach.SHADOW:
            # Nobody knows the machine, so it alerts once, for all that it sends.
            machine = (schema.SRC, schema.SRC_GROUP)
            return Alerting(schema.TX_BYTES, limits.shadow_node_bytes, limits.violation_flows, machine)
        case Breach.WRONG_PLANE:
            return Alerting(schema.BYTES, limits.storage_on_compute_bytes)
        case Breach.MANAGEMENT:
            return Alerting(schema.BYTES, limits.management_bytes)


def breaches(*conditions: Condition) -> Select:
    """Return the breaches of the chosen groups, nothing taken yet."""
    return Select(schema.BREACH, schema.BREACH.kept).where(*var.chosen_groups(), *conditions)


def of_kind(*kinds: Breach) -> Condition:
    """Return the condition that a breach is of one of these kinds."""
    return is_in(schema.KIND, [kind.value for kind in kinds])


def breach_tile(cluster: Cluster, face: Face, kind: Breach) -> Built:
    """Return the largest finding of one kind, in the measures and with the limits of its rule."""
    rule = alerting(cluster, kind)
    each = breaches(of_kind(kind)).by(*rule.labels)

    def most(field: schema.Field, name: str) -> Query:
        sums = each.take(total(field))
        return Select(sums).take(highest(field)).per_series(f"{field.text}: the most of any.", alias=name)

    queries, overrides = [most(rule.measure, _LARGEST)], []
    if rule.flows is not None:
        queries.append(most(schema.FLOWS, _MOST_FLOWS))
        steps = {"mode": "absolute", "steps": Limit(act=rule.flows).steps()}
        overrides.append(panels.override(_MOST_FLOWS, unit=Unit.COUNT.value, thresholds=steps))
    return panels.stat(
        cluster,
        face,
        queries,
        limit=Limit(act=rule.limit),
        missing=("none", QUIET),
        overrides=overrides,
    )


def breach_table(cluster: Cluster, face: Face, *conditions: Condition, kinds: bool = True) -> Built:
    """Return the conversations that break the segmentation, largest first; `kinds`: with a column that says how."""
    inner = (
        breaches(*conditions)
        .take(total(schema.BYTES), total(schema.FLOWS), total(schema.DURATION), highest(schema.EVENT_DESTINATIONS))
        # Rows that were taken back are zero.
        .where(compare(schema.BYTES, ">", 0))
        .by(*schema.BREACH.tags)
    )
    kind = panels.Column(
        schema.KIND,
        "What",
        mappings=(panels.words({k.value: (t, "text") for k, t in BREACH_TITLES.items()}),),
        width=190,
    )
    return panels.table(
        cluster,
        face,
        [top_rows(inner)],
        [
            *([kind] if kinds else []),
            *ends.both(cluster, "segmentation"),
            panels.Column(schema.PROTO, "Protocol", width=80),
            panels.Column(schema.SERVICE, "Service", width=110),
            panels.Column(schema.BYTES.name, "Bytes, both ways", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=110),
            # Those of a shadow node are not counted.
            panels.Column(
                schema.EVENT_DESTINATIONS.name, "Destinations", Unit.COUNT, mappings=(panels.words({0: ("", "")}),),
                width=110,
            ),
            panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=100),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def links() -> tuple[Link, ...]:
    """Return where a breach leads: the matrix, and home."""
    return (to_board("group_matrix", keep=var.GROUPS), to_board("noc_wall"))
