"""Stragglers: which nodes hold a job up, during the run and after it."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards import panels
from dashboards import variables as var
from dashboards.board import Page
from dashboards.boards.checkpoints import run_marks
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.panels import Built, Cell, Face, TableOrder
from dashboards.parts import node_states, transport
from store import schema
from store.influxql import Condition, Query, Select, Unit, beside, chosen, compare, highest, newest

BOARD = "stragglers"

_RANKED_EVERY = 300
_SHOWN = 20
_CANNOT = "In synchronous collectives all nodes send alike: a small deficit over hours says more than a window."


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            _ranking(cluster),
            _deficit(cluster),
            _onset(cluster),
            _low_time(cluster),
            _shares(cluster),
            _digests(cluster),
        ),
        variables=(
            var.stored(cluster, var.JOB, "Job", schema.JOB_NODE, schema.JOB),
            var.stored(cluster, var.NODE, "Node", schema.JOB_NODE, schema.NODE),
        ),
        annotations=run_marks(cluster, chosen(schema.JOB, var.JOB)),
        tags=("training",),
    )


def _of_job() -> tuple[Condition, ...]:
    return (chosen(schema.JOB, var.JOB), chosen(schema.NODE, var.NODE))


def _nodes() -> Select:
    # Rows that were taken back have no rank.
    return Select(schema.JOB_NODE, schema.RAW).where(*_of_job(), compare(schema.RANK, ">", 0))


def _ranking(cluster: Cluster) -> Built:
    fields = (
        schema.RANK, schema.DEFICIT, schema.DEFICIT_BYTES, schema.SCORE, schema.ONSET_LAG, schema.LOW_SECONDS,
    )  # fmt: skip
    # One selector reads each node once; one for each field, so many times.
    select = _nodes().take(newest(fields[0]), *map(beside, fields[1:])).by(schema.NODE, schema.JOB)
    return panels.table(
        cluster,
        Face(
            "ranking", "Stragglers, the worst first",
            "The last ranking of each node in the range: bytes it lacks since its job got going, against its own past.",
            f"{_CANNOT} {transport.training_note(cluster)}",
            "Onset lag shows who begins late: after pauses, by windows of 10 s; in each step, where sFlow shows it.",
            x=0, y=0, w=14, h=14, links=(to_board("training", keep=(var.JOB,)),),
        ),
        [select.per_series("Where a node stands.").as_table()],
        [
            panels.Column(schema.RANK.name, "Rank", Unit.COUNT, width=70),
            panels.Column(
                schema.NODE, "Node",
                links=(
                    to_board("stragglers", "Only this node", keep=(var.JOB,), node=row(schema.NODE)),
                    to_board("training", "Against its limit", job=row(schema.JOB), node=row(schema.NODE)),
                    to_board("explore", "Explore this node", node=row(schema.NODE)),
                ),
            ),
            panels.Column(schema.JOB, "Job", links=(to_board("training", "This run", job=row(schema.JOB)),)),
            panels.Column(schema.DEFICIT.name, "Deficit", Unit.RATIO, width=95),
            panels.Column(schema.DEFICIT_BYTES.name, "Bytes it lacks", Unit.BYTES, Cell.BAR),
            panels.Column(schema.SCORE.name, "Spreads below", Unit.COUNT, width=120, digits=1),
            panels.Column(schema.ONSET_LAG.name, "Onset lag", Unit.SECONDS, width=95),
            panels.Column(schema.LOW_SECONDS.name, "Time low", Unit.SECONDS, width=95),
        ],
        order=TableOrder(schema.RANK.name, ascending=True),
    )  # fmt: skip


def _worst(field: schema.Field) -> Select:
    """Return a field of the nodes that were ever ranked among the first in the range; a node has a line, not a run."""
    return _nodes().where(compare(schema.RANK, "<=", _SHOWN)).take(highest(field)).by(schema.NODE)


def _over_time(cluster: Cluster, field: schema.Field, meaning: str) -> Query:
    alias = f"$tag_{schema.NODE}"
    return _worst(field).over_time(cluster, meaning, alias=alias, settled=False).at_least(_RANKED_EVERY)


def _deficit(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "deficit", "Deficit since steady state began",
            f"Share of its expected bytes that a node lacks so far, while it ranks among the first {_SHOWN}.",
            "It is a sum since the start of the job: an old incident fades slowly.",
            "A line that climbs is a node that gets worse: look at its links and its GPUs.",
            x=14, y=0, w=10, h=7, links=(to_board("training", keep=(var.JOB,)),),
        ),
        [_over_time(cluster, schema.DEFICIT, "Deficit of a node.")],
        links=(to_board("stragglers", "Only this node", keep=(var.JOB,), node=clicked(schema.NODE)),),
        minimum=None,
    )  # fmt: skip


def _onset(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "onset", "Onset lag behind the cohort",
            "Mean delay with which a node begins after pauses, by the bytes that it lacks in the first windows.",
            "Windows are 10 s long: single steps show only where sFlow is kept by the second; then this is their lag.",
            "A node that always begins late waits for its own data, a slow disk, a late process.",
            x=14, y=7, w=10, h=7, links=(to_board("checkpoints", keep=(var.JOB,)),),
        ),
        [_over_time(cluster, schema.ONSET_LAG, "Onset lag of a node.")],
        links=(to_board("stragglers", "Only this node", keep=(var.JOB,), node=clicked(schema.NODE)),),
        minimum=None,
        missing="no pause to begin after",
    )  # fmt: skip


def _low_time(cluster: Cluster) -> Built:
    select = _nodes().take(newest(schema.LOW_SECONDS)).where(compare(schema.LOW_SECONDS, ">", 0))
    return panels.table(
        cluster,
        Face(
            "low_time", "Time low or down",
            "How long each node was below its limit while its job computed, in the runs of this range.",
            "Nodes without enough earlier runs have no limit, and never are.",
            "Click a node for its share against its limit.",
            x=0, y=14, w=7, h=10, links=(to_alerts(),),
        ),
        [select.by(schema.NODE, schema.JOB).per_series("Time that a node was low.").as_table()],
        [
            panels.Column(
                schema.NODE, "Node",
                links=(to_board("training", "Against its limit", job=row(schema.JOB), node=row(schema.NODE)),),
            ),
            panels.Column(schema.JOB, "Job"),
            panels.Column(schema.LOW_SECONDS.name, "Time low", Unit.SECONDS, Cell.BAR),
        ],
        order=TableOrder(schema.LOW_SECONDS.name),
    )  # fmt: skip


def _shares(cluster: Cluster) -> Built:
    return node_states.timeline(
        cluster,
        Face(
            "shares", "States of the nodes",
            "Learning, ok, low, down, or blind (exporter silent, or shared with another job), for each node over time.",
            f"{transport.training_note(cluster)} A gap means that no job ran.",
            "Click a node for observed, expected and limit.",
            x=7, y=14, w=17, h=10, links=(node_states.stragglers(cluster),),
        ),
        *_of_job(),
        keep=(var.JOB,),
    )  # fmt: skip


def _digests(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    columns = (
        highest(schema.LOW_NODES), newest(schema.JOB_NODES), highest(schema.LOW_FOR), highest(schema.MISSING_BYTES),
    )  # fmt: skip
    told = chosen(schema.JOB, var.JOB), compare(schema.LOW_NODES, ">", 0)
    rows = Select(schema.DROPOUT_DIGEST, schema.RAW).where(*told).take(*columns)
    return panels.table(
        cluster,
        Face(
            "digests", "Many nodes at once",
            f"Times at which more than {limits.dropout_digest} nodes of a job were low: one alert after "
            f"{format_duration(limits.dropout_for)}, in place of one a node.",
            "The names are those that were worst when it began; the states above show all.",
            "So many at once have one cause: look at what they share.",
            x=0, y=24, w=24, h=7, links=(to_alerts(),),
        ),
        [rows.by(schema.JOB, schema.WORST).per_series("Many nodes low at once.").as_table()],
        [
            panels.Column(schema.JOB, "Job", links=(to_board("training", "This run", job=row(schema.JOB)),)),
            panels.Column(schema.WORST, "Worst when it began"),
            panels.Column(schema.LOW_NODES.name, "Most nodes low", Unit.COUNT, width=130),
            panels.Column(schema.JOB_NODES.name, "Of", Unit.COUNT, width=80),
            panels.Column(schema.LOW_FOR.name, "For", Unit.SECONDS, width=110),
            panels.Column(schema.MISSING_BYTES.name, "Missing", Unit.BYTES, width=110),
        ],
        order=TableOrder(schema.LOW_NODES.name),
    )  # fmt: skip
