"""Coverage: what flow records see of each group pair, against what cluster.yaml declares; and what is not judged."""

from collections.abc import Sequence
from dataclasses import replace

from cluster.model import CloudFormat, Cluster
from dashboards import panels
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import CELL, to_board
from dashboards.palette import BLIND, DIM, LOOK, QUIET
from dashboards.panels import Built, Cell, Column, Face, Limit, TableOrder
from dashboards.parts import transport
from store import schema
from store.influxql import Column as Value
from store.influxql import Query, Select, Unit, added, bit, compare, count, highest, newest, scaled, top_rows, total
from store.schema import CoverageState

BOARD = "coverage"

_LATEST = "20m"
"""Holds the newest verdicts, which come every five minutes and wait until no late record can change them."""
_FLOWS, _COUNTERS, _SHARE = "flows", "counters", "of_counters"
_LEAST_SHARE = 0.5
"""Below it a link is seen in part (``analysis.detectors.fabric.coverage.LEAST_SHARE``)."""

STATE_COLOURS = {
    CoverageState.IDLE: DIM,
    CoverageState.SEEN: QUIET,
    CoverageState.UNDECLARED: LOOK,
    CoverageState.INVISIBLE: BLIND,
    CoverageState.PARTIAL: LOOK,
}
_TILES = (CoverageState.SEEN, CoverageState.UNDECLARED, CoverageState.PARTIAL, CoverageState.INVISIBLE)


def page(cluster: Cluster, skipped: Sequence[str] | None = None) -> Page:
    """Return the board.

    Args:
        cluster: what it is about.
        skipped: a line for each rule, or part of one, that is not generated; None where that is not known.
    """
    return Page(
        BOARD,
        (
            _counts(cluster),
            _pairs(cluster),
            _skipped(cluster, skipped),
            _over_time(cluster),
            _visibility(cluster),
            _interfaces(cluster),
            _share_over_time(cluster),
            _unread(cluster),
            _counting(cluster),
            _unseen(cluster),
            _floor(cluster),
            *([_cloud(cluster), _log_gaps(cluster)] if cluster.cloud.format else []),
        ),
        since="24h",
        variables=var.from_and_to(cluster),
        tags=("pipeline",),
    )


def _mapping() -> panels.Json:
    return panels.words({state: (word, STATE_COLOURS[state]) for state, word in schema.COVERAGE_WORDS.items()})


def _verdicts() -> Select:
    return Select(schema.COVERAGE, schema.RAW)


def _counts(cluster: Cluster) -> Built:
    look = Limit(look=1)
    limits = {CoverageState.UNDECLARED: look, CoverageState.PARTIAL: look}
    return panels.stat(
        cluster,
        Face(
            "counts", "Group pairs by what is seen of them",
            "How many group pairs are seen as declared, not as declared, in part, or not at all.",
            "Pairs that are not in use, allowed or declared are not counted; nor is traffic inside a host or a switch.",
            "The table below names the pairs.",
            x=0, y=0, w=24, h=4, links=(to_board("noc_wall"),), since=_LATEST,
        ),
        [_pairs_in(state) for state in _TILES],
        unit=Unit.COUNT,
        missing=("no verdict", DIM),
        overrides=[
            panels.override(
                schema.COVERAGE_WORDS[state],
                thresholds={"mode": "absolute", "steps": limits.get(state, Limit()).steps()},
            )
            for state in _TILES
        ],
    )  # fmt: skip


def _pairs_in(state: int) -> Query:
    """Count the pairs whose newest verdict is a state: 0 while others have one."""
    word, pairs = schema.COVERAGE_WORDS[state], count(schema.COVERAGE_STATE, "pairs")
    latest = _verdicts().take(newest(schema.COVERAGE_STATE)).by(schema.SRC_GROUP, schema.DST_GROUP)
    matching = Select(latest).take(pairs).where(
        compare(schema.COVERAGE_STATE, "=", state)
    )  # fmt: skip
    zero = _verdicts().take(scaled(pairs, "0", pairs.name, Unit.COUNT))
    return Select((matching, zero)).take(total(pairs, word)).per_series(f"Pairs that are {word}.", alias=word)


def _pairs(cluster: Cluster) -> Built:
    fields = (
        schema.COVERAGE_STATE, schema.DECLARED, schema.COVERED_BYTES, schema.ROCE_BYTES, schema.UNCOUNTED_BYTES,
        schema.COUNTER_SHARE,
    )  # fmt: skip
    told = _verdicts().take(*map(newest, fields))
    select = told.where(*var.chosen_groups()).by(schema.SRC_GROUP, schema.DST_GROUP)
    words = (panels.group_words(cluster),)
    declared = panels.words({number: (word, "") for number, word in schema.DECLARED_WORDS.items()})
    explore = to_board("explore", "Explore what it sends", src=CELL)
    return panels.table(
        cluster,
        Face(
            "pairs", "Declared against seen, the last hour",
            "Each group pair: the transport that cluster.yaml declares, and what flow records saw of it.",
            "RoCE shows only where a switch samples it (sFlow); counters are a plane's, not a pair's.",
            "Not as declared: mend `transport`, or see why a library fell back. Partly seen: look at the exporters.",
            x=0, y=4, w=16, h=12, links=(to_board("group_matrix", keep=var.GROUPS),), since=_LATEST,
        ),
        [select.per_series("A group pair.").as_table()],
        [
            Column(schema.SRC_GROUP, "From", mappings=words, links=(explore,)),
            Column(schema.DST_GROUP, "To", mappings=words),
            Column(schema.DECLARED.name, "Declared", mappings=(declared,), width=95),
            Column(schema.COVERAGE_STATE.name, "Seen", cell=Cell.COLOUR, mappings=(_mapping(),), width=130),
            Column(schema.COVERED_BYTES.name, "Bytes", Unit.BYTES, width=95),
            Column(schema.ROCE_BYTES.name, "of it RoCE", Unit.BYTES, width=95),
            Column(schema.UNCOUNTED_BYTES.name, "Uncounted", Unit.BYTES, width=100),
            Column(schema.COUNTER_SHARE.name, "of counters", Unit.RATIO, width=105),
        ],
        order=TableOrder(schema.COVERED_BYTES.name),
        limit_rows=200,
    )  # fmt: skip


def _skipped(cluster: Cluster, skipped: Sequence[str] | None) -> Built:
    if skipped is None:
        lines = "`clusterflow build` says which rules are not generated, and why."
    elif skipped:
        lines = "\n".join(f"- {_escaped(line)}" for line in skipped)
    else:
        lines = "None: every rule is generated, for every pair that it looks at."
    return panels.text(
        cluster,
        Face(
            "skipped", "Rules that are switched off, and why",
            "Rules, and parts of rules, that `clusterflow build` did not generate from this cluster.yaml.",
            "It is as old as the last build: after a change of cluster.yaml run it again.",
            "A pair that is visible after all: mend its `transport`, and build.",
            x=16, y=4, w=8, h=12, links=(to_board("pipeline"),),
        ),
        lines,
    )  # fmt: skip


def _escaped(text: str) -> str:
    """Keep Markdown from reading names as markup, and Grafana from reading variables."""
    for sign in ("\\", "*", "_", "`", "<", "[", "$"):
        text = text.replace(sign, f"&#{ord(sign)};" if sign in "<$" else f"\\{sign}")
    return text


def _over_time(cluster: Cluster) -> Built:
    query = (
        _verdicts()
        .take(highest(schema.COVERAGE_STATE))
        .where(*var.chosen_groups())
        .by(schema.SRC_GROUP, schema.DST_GROUP)
    )
    alias = f"$tag_{schema.SRC_GROUP} → $tag_{schema.DST_GROUP}"
    return panels.state_timeline(
        cluster,
        Face(
            "over_time", "What was seen of each pair, over time",
            "The same verdicts over time, a row a pair: the worst of each bin.",
            "A gap means that no verdict was made: the analysis was away.",
            "A change without a change of cluster.yaml is a change of the network, or of an exporter.",
            x=0, y=16, w=16, h=10, links=(to_board("pipeline"),),
        ),
        [query.over_time(cluster, "State.", alias=alias, settled=False).at_least(300)],
        [_mapping()],
        links=(to_board("group_matrix", keep=var.GROUPS),),
        transformations=panels.pair_titles(cluster),
    )  # fmt: skip


def _visibility(cluster: Cluster) -> Built:
    return panels.text(
        cluster,
        Face(
            "visibility", "What flow records see",
            "Which group pairs are visible at all, by the transport that cluster.yaml declares.",
            "It repeats what is declared; the table above says what was found.",
            "The training board says what it means for jobs.",
            x=16, y=16, w=8, h=10, links=(to_board("training", "Training"),),
        ),
        transport.explanation(cluster),
    )  # fmt: skip


def _flows_and_counters() -> tuple[Value, Value, Value]:
    """Return flow bytes, counter bytes and the share of the one in the other, both directions together."""
    sums = (
        added((schema.IN_BYTES, schema.OUT_BYTES), _FLOWS, Unit.BYTES),
        added((schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES), _COUNTERS, Unit.BYTES),
    )
    flows, counters = (replace(one, expression=f"({one.expression})") for one in sums)
    # A ratio of whole numbers is one itself where an outer question reads it: InfluxDB cuts off its fraction.
    share = f"{flows.expression} * 1.0 / {counters.expression}"
    return flows, counters, Value(share, _SHARE, Unit.RATIO, (*flows.reads, *counters.reads))


def _interfaces(cluster: Cluster) -> Built:
    tags = (schema.EXPORTER, schema.INTERFACE, schema.PLANE, schema.KIND)
    flows, counters, share = _flows_and_counters()
    inner = Select(schema.INTERFACE_TRAFFIC, schema.MINUTE).take(counters, flows, share).by(*tags)
    return panels.table(
        cluster,
        Face(
            "interfaces", "Flow records against interface counters, 1 h",
            "Bytes of each interface by flow records, and by its own counters, both directions together.",
            "Only sFlow devices send counters; they count whole frames, flow records the IP part.",
            "A share far below 1 is lost records, a wrong sampling rate, or traffic that is not exported.",
            x=0, y=26, w=12, h=10, links=(to_board("pipeline"),), since="1h",
        ),
        [top_rows(inner)],
        [
            Column(schema.EXPORTER, "Exporter"),
            Column(schema.INTERFACE, "Interface"),
            Column(schema.PLANE, "Plane", width=100),
            Column(schema.KIND, "Kind", width=70),
            Column(_FLOWS, "By flow records", Unit.BYTES, width=130),
            Column(_COUNTERS, "By counters", Unit.BYTES, width=120),
            Column(
                _SHARE, "Share", Unit.RATIO, Cell.COLOUR, limit=Limit(look=_LEAST_SHARE, below=True), width=90
            ),
        ],
        order=TableOrder(_COUNTERS),
    )  # fmt: skip


def _share_over_time(cluster: Cluster) -> Built:
    share = _flows_and_counters()[2]
    each = Select(schema.INTERFACE_TRAFFIC, schema.MINUTE).take(share).by(schema.EXPORTER).binned()
    # Of the retentions one answers, so that there is one share in a bin.
    query = Select(each.by_interval(cluster)).take(highest(share)).by(schema.EXPORTER)
    return panels.time_series(
        cluster,
        Face(
            "share_over_time", "Share of the counters that flow records reach",
            "Flow bytes over counter bytes of all interfaces of each exporter that sends counters.",
            "Short bins jump: counters are read every 20 s or so, and samples have an error of their own.",
            "A step down means that records are lost or a sampling rate changed: the pipeline board says which.",
            x=12, y=26, w=12, h=10, links=(to_board("pipeline"),),
        ),
        [query.over_time(cluster, "Share.", alias=f"$tag_{schema.EXPORTER}").at_least(300)],
        unit=Unit.RATIO,
        limit=Limit(look=_LEAST_SHARE, below=True),
        legend_right=True,
        missing="no counters",
    )  # fmt: skip


def _unread(cluster: Cluster) -> Built:
    newest_bits = Select(schema.EXPORTER_STATUS, schema.RAW).take(newest(schema.UNREAD)).by(schema.EXPORTER)

    def having(reason: schema.Unread) -> Query:
        bits = Select(newest_bits).take(bit(schema.UNREAD, reason)).by(schema.EXPORTER)
        some = Select(bits).take(highest(schema.UNREAD)).where(compare(schema.UNREAD, ">", 0)).by(schema.EXPORTER)
        return some.per_series("An exporter of which this is not read.").as_table()

    return panels.table(
        cluster,
        Face(
            "unread", "Exporters that are not counted right",
            "What pmacct does not read of NetFlow v9 and IPFIX templates, or sFlow, and whose records come twice.",
            "Empty with pmacct's own Kafka plugin. Templates must be kept, and two VLAN tags take CAP_NET_RAW.",
            "docs/verdicts.md says what to change on the device.",
            x=0, y=45, w=12, h=6, links=(to_board("pipeline"),), since=_LATEST,
        ),
        [having(reason) for reason in schema.UNREAD_WORDS],
        [
            Column(schema.EXPORTER, "Exporter", width=200),
            Column(
                schema.UNREAD.name, "Why",
                mappings=(panels.words({one: (text, LOOK) for one, text in schema.UNREAD_WORDS.items()}),),
            ),
        ],
        before=[{"id": "merge", "options": {}}],
    )  # fmt: skip


def _unseen(cluster: Cluster) -> Built:
    measurement = schema.UNSEEN
    select = (
        Select(measurement, measurement.kept)
        .take(*(newest(field) for field in measurement.fields))
        .where(compare(schema.UNSEEN_BYTES, ">", 0))
        .by(schema.EXPORTER)
    )
    return panels.table(
        cluster,
        Face(
            "unseen", "Exporters whose flows stopped while their counters went on, 24 h",
            "Bytes that flow records usually tell of at these counters, less those that they told of.",
            "Only sFlow devices send counters. What is missing before a day is known is not told.",
            "See who changed the device's flow export.",
            x=12, y=45, w=12, h=6, links=(to_board("pipeline"),), since="24h",
        ),
        [select.per_series("An exporter.").as_table()],
        [
            Column(schema.EXPORTER, "Exporter", width=200),
            Column(schema.UNSEEN_BYTES.name, "Missing", Unit.BYTES, Cell.BAR),
            Column(schema.UNSEEN_FLOWS.name, "By flow records", Unit.BYTES),
            Column(schema.EVENT_SECONDS.name, "For", Unit.SECONDS, width=100),
        ],
    )  # fmt: skip


def _floor(cluster: Cluster) -> Built:
    measurement = schema.FLOOR
    select = (
        Select(measurement, measurement.kept)
        .take(*(newest(field) for field in measurement.fields))
        .by(*measurement.tags)
    )
    return panels.table(
        cluster,
        Face(
            "floor", "How much could leave without an alert, as of the last clusterflow floor",
            "The largest theft by each way that no sum tells of, beside what left in the last four weeks.",
            "A search over the real rules. It stands until somebody runs it again; first contacts may come before.",
            "Lower `thresholds.exfil_*` where a model is gone too soon: `clusterflow floor --curve` shows the price.",
            x=0, y=51, w=24, h=9, links=(to_board("egress", "Egress", keep=var.GROUPS),), since="31d",
        ),
        [select.per_series("A way out.").as_table()],
        [
            Column(schema.KIND, "Way", width=110),
            Column(schema.ABOUT, "What"),
            Column(schema.DAILY_UNSEEN.name, "In one day", Unit.BYTES, width=130),
            Column(schema.SUSTAINED_UNSEEN.name, "A day, for 30 days", Unit.BYTES, width=160),
            Column(schema.DAYS_TO_LOSE.name, "Days to lose each model"),
        ],
        missing="not run",
    )  # fmt: skip


def _counting(cluster: Cluster) -> Built:
    tags = (schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER, schema.COUNTED_BY, schema.REASON)
    counted = Select(schema.COUNTING, schema.MINUTE).take(total(schema.COUNTING_BYTES))
    inner = counted.where(*var.chosen_groups()).by(*tags)
    words = (panels.group_words(cluster),)
    because = panels.words({reason.value: (reason.value.replace("_", " "), "") for reason in schema.Because})
    return panels.table(
        cluster,
        Face(
            "counting", "Who counts what several exporters see",
            "What each exporter saw, and whose records of it count: found while records flow, with the reason.",
            "Exact where one that does not sample saw all of it; between sampling exporters it is an estimate. "
            "*saw more*: a better one saw the conversation, but not half of its bytes: both count.",
            "`clusterflow suggest` prints the lines of `authority` that say the same for good.",
            x=0, y=36, w=24, h=9, links=(to_board("pipeline"),), since="1h",
        ),
        [top_rows(inner)],
        [
            Column(schema.SRC_GROUP, "From", mappings=words),
            Column(schema.DST_GROUP, "To", mappings=words),
            Column(schema.EXPORTER, "Seen by"),
            Column(schema.COUNTED_BY, "Counted by"),
            Column(schema.REASON, "Because", mappings=(because,)),
            Column(schema.COUNTING_BYTES.name, "Bytes", Unit.BYTES, width=120),
        ],
        order=TableOrder(schema.COUNTING_BYTES.name),
    )  # fmt: skip


_OF_ALL = (
    "Bytes between containers or processes of one machine, what a load balancer or gateway of the provider does inside "
    "itself, and most of what a machine says to the provider's own services (DNS, metadata, time) is in no flow log. "
    "A record is a sum over a minute or ten: bursts, steps and phases of a run are not resolved. There are no switch "
    "interfaces: no rails by port, no interface counters, no losses."
)
_OF_ONE = {
    CloudFormat.AWS: (
        "AWS: traffic by EFA's OS-bypass is not recorded. SKIPDATA, beside, is traffic that AWS could not record. The "
        "default format tells no direction: keep `flow-direction`, `pkt-srcaddr` and `pkt-dstaddr` in a format of your "
        "own, and name NAT gateways in `cloud.skip_interfaces`."
    ),
    CloudFormat.GOOGLE: (
        "Google: packets are sampled, by a rate that changes, and scaled by Google: bytes are estimates, small "
        "conversations may be missing. What firewalls refused is not in flow logs."
    ),
    CloudFormat.AZURE: (
        "Azure: a flow is told of when it ends, and every five minutes. What was refused has no bytes. InfiniBand "
        "between machines is not recorded."
    ),
}


def _cloud(cluster: Cluster) -> Built:
    if cluster.cloud.format is None:
        raise ValueError(cluster.cloud)
    return panels.text(
        cluster,
        Face(
            "cloud", "What the cloud's flow logs cannot show",
            "What never is in the flow logs of this provider.",
            "It says what the provider documents, not what was found.",
            "What was left out of them by chance is beside it.",
            x=0, y=60, w=12, h=9, links=(to_board("pipeline"),),
        ),
        f"{_OF_ALL}\n\n{_OF_ONE[cluster.cloud.format]}",
    )  # fmt: skip


def _log_gaps(cluster: Cluster) -> Built:
    inner = Select(schema.LOG_GAP, schema.RAW).take(total(schema.SKIPPED)).by(schema.INTERFACE)
    return panels.table(
        cluster,
        Face(
            "log_gaps", "Interfaces whose flow logs left records out",
            "Intervals in which packets went by that AWS could not record (SKIPDATA): blind, not quiet.",
            "How many bytes are missing nobody knows; the other end may have recorded them, and counts then.",
            "Ask AWS why; an interval of one minute makes gaps shorter.",
            x=12, y=60, w=12, h=9, links=(to_board("pipeline"),),
        ),
        [top_rows(inner)],
        [
            Column(schema.INTERFACE, "Interface"),
            Column(schema.SKIPPED.name, "Intervals left out", Unit.COUNT, Cell.BAR),
        ],
        order=TableOrder(schema.SKIPPED.name),
    )  # fmt: skip
