"""NOC wall: one screen of 1920 x 1080 in kiosk mode, legible from three metres. Is the cluster healthy, what fires?

No letter is smaller than 20 pixels. Grafana's titles have 14, the axes of its charts 12, and no option changes them: so
the panels have no title (their description shows where a mouse is), tiles are named by their numbers, and where a chart
would have an axis there are numbers with a curve, strips, or a drawing.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from cluster.model import EXTERNAL, Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.boards import checkpoints
from dashboards.links import clicked, row, to_alerts, to_board
from dashboards.palette import (
    ACT,
    CALM,
    DIM,
    LOOK,
    OTHER_COLOUR,
    QUIET,
    STATE_COLOURS,
    UNUSED,
    group_colours,
    shade,
    short_titles,
    telling_end,
)
from dashboards.panels import Built, Cell, Face, Json, Large, Limit
from dashboards.parts import node_states, run_panels, transport
from dashboards.parts.matrix import matrix_drawing
from dashboards.registry import BOARDS
from store import schema
from store.influxql import (
    Condition,
    Query,
    Select,
    Unit,
    ago,
    all_of,
    any_of,
    beside,
    bit_rate,
    bottom,
    chosen,
    compare,
    count,
    event_rate,
    highest,
    is_in,
    labelled,
    lowest,
    newest,
    not_in,
    says,
    scaled,
    total,
)
from store.schema import NodeState

BOARD = "noc_wall"

_OF_PANELS = {
    BOARD, "egress", "ledger", "segmentation", "management",
    "training", "stragglers", "checkpoints", "alerts", "pipeline",
}  # fmt: skip
"""Boards that a panel of the wall leads to; the traffic's links lead to all others, new ones too."""

_LETTERS = 20
"""Pixels of the smallest letters: 5 mm on a screen of 24 inches, 12 mm on one of 55."""

# What is wider than a tile without its margins takes two lines, of which one shows: see the tests.
_TILE = Large(62, _LETTERS, digits=0, centred=True)
_LINE = Large(62, 22, wide=True, digits=0)
_CURVE = Large(25, _LETTERS, wide=True, rows=True)

_PAIRS_SHOWN = 4
_CURVE_POINTS = 360

_ALERT_ROWS = 10
_ALERT_DAYS = "30d"
_WHAT = 210
"""Pixels that tell rules apart by their names."""
_PLACE = 15
"""Letters of a source or destination that have room."""

_WORST = "worst_nodes"
_WORST_SHOWN = 14
_STRIP_POINTS = 72
_WELL, _BADLY = 0.9, 0.5
"""Shares of the cohort's median between which a strip turns orange by steps; limits are each node's own."""

_NAMES, _GRID_PIXELS = 64, (600, 356)
_NAMES_LETTERS = 11
"""Letters of a name that have room beside its share."""

_RECENT, _ALIVE = "15m", "5m"
_MINUTE = 60
_RECENT_SECONDS = 900

ZERO = "zero"
"""Name of the query that finds 0 wherever anything is alive."""


def page(cluster: Cluster) -> Page:
    """Return the wall."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _alerts(cluster),
            run_panels.on_the_wall(cluster),
            _worst_nodes(cluster),
            _strips(cluster),
            _cohort_grid(cluster),
            matrix_drawing(cluster, "matrix", x=8, y=14, w=7, h=10, since="1h"),
            _traffic(cluster),
            _egress(cluster),
            *_pipeline_strip(cluster),
        ),
        refresh="10s",
        variables=(var.found(cluster, _WORST, _worst_now(cluster)),),
        tags=("wall",),
    )


# -- first line: seven tiles ---------------------------------------------------------------------------


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    unknown = _whole(f"To unknown {_minutes(limits.exfil_window)}")
    to_unknown, recent = questions.sent_to_unknown(cluster, schema.RAW), panels.newest(cluster, 60)
    return [
        _firing(cluster, "critical", Limit(act=1), 0),
        _firing(cluster, "warning", Limit(look=1), 2),
        panels.stat(
            cluster,
            Face(
                "data_age", "",
                f"How old the newest flow record of any exporter is; old: nothing at all arrived within {recent}.",
                "One live exporter is enough to look fresh here.",
                "The pipeline board shows each exporter.",
                x=4, y=0, w=3, h=4, links=(to_board("pipeline"),), since=recent, by_arrival=True,
            ),
            [questions.newest_age().per_series("Age of the newest record.", alias=_whole("Data age"))],
            # Of less than a second Grafana makes milliseconds, for which there is no room.
            unit="suffix: s",
            limit=Limit(look=limits.ingest_silent / 2, act=limits.ingest_silent),
            missing=("old", ACT),
            large=_TILE,
        ),
        _cohort_counts(cluster),
        panels.stat(
            cluster,
            Face(
                "unknown_volume", "",
                "What model storage sent to destinations in no group, in its largest conversation: as the alert does.",
                "It says how much, not what. Split transfers fire the alert *exfiltration*.",
                "Egress & security names sources and destinations, and the sum of all.",
                x=13, y=0, w=4, h=4, links=(to_board("egress"),),
                since=f"{limits.exfil_window}s",
            ),
            [
                Select(to_unknown.by(*questions.LISTED))
                .take(highest(schema.BYTES))
                .per_series("Bytes of the largest conversation.", alias=unknown),
                _zero(),
            ],
            transformations=panels.largest_as(unknown),
            mappings=_unless(questions.role_ids(cluster, Role.MODEL_STORAGE)),
            limit=Limit(act=limits.exfil_volume, look=limits.exfil_volume / 2),
            large=_TILE,
        ),
        panels.stat(
            cluster,
            Face(
                "checkpoint_age", "",
                "How far the most overdue checkpoint of a running job is beyond its time.",
                "Jobs without a schedule or a rhythm are not judged; flow records do not know whether one is good.",
                "Checkpoints & I/O shows each job against its schedule, and how old its last one is.",
                x=17, y=0, w=3, h=4, links=(to_board("checkpoints"),), since=panels.newest(cluster, 120),
            ),
            [checkpoints.most_overdue("Checkpoint", f"{1 / _MINUTE:.6f}")],
            # `12 mins` has no room on a laptop.
            unit="suffix:m",
            mappings=[panels.words({0: ("ok", QUIET)})],
            limit=checkpoints.overdue_limit(cluster, _MINUTE),
            missing=("n/a", DIM),
            large=_TILE,
        ),
        panels.stat(
            cluster,
            Face(
                "stall_cost", "",
                f"GPU time that jobs lost to dropouts, slowness, stalls since midnight, {run_panels.price(cluster)}.",
                "All GPUs of a job are taken to wait while one of its nodes is low: an upper bound.",
                "Capacity & cost shows jobs and causes.",
                x=20, y=0, w=4, h=4, links=(to_board("capacity"),), since="now/d",
            ),
            [questions.stall_usd().per_series("USD lost.", alias=_whole("Stalls today")), _zero()],
            transformations=panels.largest_as(_whole("Stalls today")),
            large=_TILE,
        ),
    ]  # fmt: skip


def _unless(watched: Sequence[str]) -> list[Json]:
    """Return what is shown in place of 0 where no group is watched: others may send whatever they like."""
    return [] if watched else [panels.words({0: ("n/a", DIM)})]


def _zero() -> Query:
    """Return 0 while records arrive, to stand beside what may find nothing: a tile without any value has no name."""
    alive = ago(">", _ALIVE)
    rows = Select(schema.EXPORTER_STATUS, schema.RAW).where(alive)
    return rows.take(scaled(count(schema.AGE), "0", "alive", Unit.COUNT)).per_series("Nothing.", alias=ZERO)


def _firing(cluster: Cluster, severity: str, limit: Limit, x: int) -> Built:
    alerts = questions.alerts().where(is_in(schema.SEVERITY, [severity]))
    told = [compare(schema.MUTED, "=", 0)] if cluster.site.maintenance else []
    query = alerts.where(says(schema.ALERT_STATE, schema.FIRING), *told).take(count(schema.BEGAN, "firing"))
    name = severity.capitalize()
    return panels.stat(
        cluster,
        Face(
            f"alerts_{severity}", "",
            f"How many {severity} alerts fire now, of those that began within 30 days."
            f"{' Those that maintenance mutes are left out.' if told else ''}",
            "It counts alerts that Grafana sent to deliver; the pipeline board shows whether that works.",
            "The list below names them.",
            x=x, y=0, w=2, h=4, links=(to_board("alerts"), to_alerts()), since=_ALERT_DAYS,
        ),
        [query.per_series("Alerts that fire.", alias=name), _zero()],
        transformations=panels.largest_as(name),
        unit="none",
        limit=limit,
        # No word has room.
        missing=("?", DIM),
        links=(to_board("alerts", severity=severity), to_alerts()),
        large=_TILE,
    )  # fmt: skip


def _whole(name: str) -> str:
    """Return a tile's name with spaces that end no line: in two lines it would push its number out of sight."""
    return name.replace(" ", "\u00a0")


def _minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"


def _cohort_counts(cluster: Cluster) -> Built:
    shown = (
        (NodeState.OK, _whole("Nodes ok")), (NodeState.LOW, "low"), (NodeState.DOWN, "down"),
        (NodeState.BLIND, "blind"), (NodeState.LEARNING, "learning"),
    )  # fmt: skip
    face = Face(
        "cohort_counts", "",
        "Nodes of running jobs by their latest window: ok, low, down, blind (exporter silent, or shared), or learning.",
        f"{transport.training_note(cluster)} Nodes with too few earlier runs are learning: nothing judges them.",
        "The training board shows each node against its limit.",
        x=7, y=0, w=6, h=4, links=(to_board("training", "Training"),), since=panels.newest(cluster, 120),
    )  # fmt: skip
    return panels.stat(
        cluster,
        face,
        [node_states.counted(state, name) for state, name in shown],
        unit="none",
        missing=("no job", DIM),
        overrides=[node_states.count_colour(state, name) for state, name in shown],
        links=(to_board("training", "Training"),),
        large=_TILE,
    )


# -- below, left: alerts, nodes --------------------------------------------------------------------------


def _alerts(cluster: Cluster) -> Built:
    resolved = panels.large_text(_LETTERS, pattern=f"/^{schema.RESOLVED}$/", text="over", style=f"color:{DIM}")
    chip = "border-radius:4px;padding:0 6px;text-align:center;color:#111;font-weight:600;background"

    def state(severity: str, colour: str) -> tuple[Json, ...]:
        firing = f"/^{schema.FIRING}$/"
        return panels.large_text(_LETTERS, pattern=firing, text=severity, style=f"{chip}:{colour}"), resolved

    # A name that wraps is cut in both of its lines.
    words = panels.large_text(
        _LETTERS, pattern="/^([^_]+)_?([^_]*)_?([^_]*)_?([^_]*)_?([^_]*)$/",
        text="$1&nbsp;$2&nbsp;$3&nbsp;$4&nbsp;$5",
    )  # fmt: skip
    long = panels.large_text(_LETTERS, pattern="/^(?=.{28})([^_]+)_([^_]+)_(.{1,2}).*$/", text="$1&nbsp;$2&nbsp;$3…")
    when = panels.large_text(_LETTERS, style=f"color:{DIM}")
    rate = panels.large_text(_LETTERS, pattern="/^(\\d+)[.]?\\d*([kMGT]?bit\\/s).*$/", text="$1$2")
    return panels.table(
        cluster,
        Face(
            "alerts", "",
            "The newest alerts of 30 days: whether they fire, since when, what, from where to where, bytes, duration.",
            "Bytes and duration are the largest that were told: a rule's window leaves behind what it fired for.",
            "The board Alerts has all of them, with false ones and the time to acknowledge.",
            x=0, y=4, w=15, h=10, since=_ALERT_DAYS,
            links=(
                to_board("alerts"), to_alerts(), to_board("segmentation"),
                to_board("management"),
            ),
        ),
        [_newest_alerts(cluster, ["critical"], _CRITICAL), _newest_alerts(cluster, ["warning", "info"], _OTHER)],
        [
            panels.Column(_CRITICAL, "Critical", cell=Cell.HTML, mappings=state("crit", ACT), width=68),
            panels.Column(_OTHER, "Others", cell=Cell.HTML, mappings=state("warn", LOOK), width=70),
            panels.Column(panels.TIME, "Since", cell=Cell.HTML, mappings=(when,), width=152),
            # On a laptop the table scrolls: what fires is told before how long.
            panels.Column(schema.RULE, "What", cell=Cell.HTML, mappings=(long, words), least=_WHAT),
            panels.Column(schema.ALERT_SOURCE.name, "From", cell=Cell.HTML, mappings=_place(cluster), width=170),
            panels.Column(
                schema.ALERT_DESTINATION.name, "To", cell=Cell.HTML, mappings=_place(cluster, "→&nbsp;"), width=196
            ),
            panels.Column(
                schema.BYTES_TEXT.name, "Bytes", cell=Cell.HTML, mappings=(rate, *_line(9, 1, cut="")), width=104
            ),
            panels.Column(
                schema.DURATION_TEXT.name, "Duration", cell=Cell.HTML, mappings=_line(7, 3, cut=""), width=95
            ),
            *([_muted()] if cluster.site.maintenance else []),
        ],
        before=[
            {"id": "merge", "options": {}},
            panels.ordered(panels.TIME),
            {"id": "limit", "options": {"limitField": _ALERT_ROWS}},
            panels.as_text(panels.TIME, "D MMM HH:mm"),
            *([panels.as_text(schema.MUTED.name)] if cluster.site.maintenance else []),
        ],
        missing="no alerts",
        limit_rows=0,
        header=False,
    )  # fmt: skip


def _line(room: int, most: int = 4, begin: str = "", cut: str = "…") -> tuple[Json, ...]:
    """Return mappings that show of a text as many words as have room in one line: in two lines, a row cuts both.

    What a notification adds to a name in brackets, after a comma or colon stands on the board Alerts.

    Args:
        room: letters.
        most: words.
        begin: stands before each text.
        cut: stands after a text of which words are left out.
    """
    found = []
    for words in range(most, 0, -1):
        # IPv6 addresses hold colons.
        pattern = " ".join([r"((?:[^\s(,;:]|:(?!\s|$))+)"] * words)
        text = begin + "&nbsp;".join(f"${number + 1}" for number in range(words))
        fit = rf"/^{_UNSAID}{pattern}(?<=^{_UNSAID}.{{1,{room}}})"
        found += [
            _one_line(rf"{fit}(?: ?\(.*|[,:;] .*)?$/", text),
            _one_line(rf"{fit} .*$/", text + cut),
        ]
    return (*found, _one_line(rf"/^{_UNSAID}(.{{{room}}}).*$/", f"{begin}$1{cut}"))


def _one_line(pattern: str, text: str) -> Json:
    """Return the mapping to a text that a hyphen does not end: it is wider than any column."""
    return panels.large_text(_LETTERS, pattern=pattern, text=text, style="width:40em")


def _place(cluster: Cluster, begin: str = "") -> tuple[Json, ...]:
    """Return mappings of a source or destination; of nodes with long names it shows the end that tells them apart."""
    names = [node.name for node in cluster.nodes]
    if max(map(len, names), default=0) <= _PLACE:
        return _line(_PLACE, begin=begin)
    pattern = rf"/^(?=[^\s(]{{{_PLACE + 1}}}){telling_end(names, _PLACE)}(?: ?\(.*|[,:;] .*)?$/"
    return _one_line(pattern, f"{begin}$1"), *_line(_PLACE, begin=begin)


_BEGINS = "the |all that goes through |refused |within |at least "
_UNSAID = f"(?:{_BEGINS}|(?!{_BEGINS}))"
"""Left out at the begin of a text."""

_CRITICAL, _OTHER = "critical", "other"
"""Columns of states: each has its own colour while an alert fires, and a row has one of them."""


def _muted() -> panels.Column:
    """Return the column that marks what maintenance mutes."""
    words = (("/^1$/", "muted"), ("/^.*$/", ""))
    mappings = tuple(
        panels.large_text(_LETTERS, pattern=pattern, text=text, style=f"color:{DIM}") for pattern, text in words
    )
    return panels.Column(schema.MUTED.name, "Muted", cell=Cell.HTML, mappings=mappings, width=80)


def _newest_alerts(cluster: Cluster, severities: list[str], name: str) -> Query:
    muted = (schema.MUTED,) if cluster.site.maintenance else ()
    fields = (schema.ALERT_SOURCE, schema.ALERT_DESTINATION, schema.BYTES_TEXT, schema.DURATION_TEXT, *muted)
    state = replace(beside(schema.ALERT_STATE), name=name)
    rows = questions.alerts().where(is_in(schema.SEVERITY, severities))
    return rows.take(*map(beside, fields), state, labelled(schema.RULE)).newest_rows(_ALERT_ROWS, "One row an alert.")


def _cohort_grid(cluster: Cluster) -> Built:
    # The name that is shown may be cut; a link needs the whole one.
    state = newest(schema.STATE), labelled(schema.NODE, schema.NAME)
    latest = Select(schema.BASELINE, schema.RAW).take(*state).where(node_states.told()).by(schema.NODE)
    colours = STATE_COLOURS | {NodeState.OK: CALM}
    words: dict[int | str, tuple[str, str]] = {
        state: (word, colours[state]) for state, word in schema.NODE_STATE_WORDS.items()
    }
    shown, pattern = _grid_names(cluster)
    return panels.stat(
        cluster,
        Face(
            "cohort_grid", "",
            f"Nodes of the running jobs in their latest window, the worst first, {shown} at most.",
            transport.training_note(cluster),
            "Click a node for its share against its limit.",
            x=0, y=14, w=8, h=10,
            links=(to_board("training", "Training"), to_board("stragglers")), since=panels.newest(cluster, 120),
        ),
        [latest.per_series("State of the node.").as_table()],
        each_row=shown,
        background=True,
        mappings=[panels.words(words | {NodeState.OK: ("", CALM)})],
        missing=("no job", UNUSED),
        overrides=[
            panels.override(schema.STATE.name, displayName=row(schema.NAME)),
            panels.override(schema.NAME, mappings=[panels.only(pattern)]),
        ],
        transformations=[node_states.worst_first()],
        links=(to_board("training", "This node", node=row(schema.NODE)),),
        large=Large(_LETTERS, _LETTERS),
    )  # fmt: skip


def _grid_names(cluster: Cluster) -> tuple[int, str]:
    """Return how many names of training nodes have room in the grid, and what is shown of each, as a pattern.

    Grafana makes the grid of squares as large as possible. All names are whole where they have room so.
    """
    names = _training_nodes(cluster)

    def room(longest: int) -> int:
        side = longest * 0.58 * _LETTERS + 20
        return max(int(_GRID_PIXELS[0] // side) * int(_GRID_PIXELS[1] // side), 4)

    longest = max(map(len, names))
    if len(names) <= room(longest):
        return min(room(longest), _NAMES), "(.*)"
    fit = (letters for letters in range(longest, 0, -1) if room(letters) >= min(len(names), _NAMES))
    pattern = telling_end(names, next(fit, 0))
    return min(room(max(len(re.sub(f"^{pattern}$", r"\1", name)) for name in names)), _NAMES), pattern


def _training_nodes(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.nodes_with(Role.TRAINING)] or ["node"]


# -- below, right: jobs, worst nodes, traffic ------------------------------------------------------------


def _worst_now(cluster: Cluster) -> str:
    """Return the question for the nodes that sent least against their cohort in the last minutes."""
    recent = ago(">", panels.lately(cluster, _RECENT)), node_states.told()
    each = Select(schema.BASELINE, schema.RAW).take(lowest(schema.OBSERVED)).where(*recent).by(schema.NODE)
    worst = bottom(schema.OBSERVED, schema.NODE, _WORST_SHOWN)
    # The range is this one, whatever the board's is.
    return Select(Select(each).take(worst)).take(labelled(schema.NODE, "")).between().per_series().influxql


def _share_steps() -> list[Json]:
    return [
        {"value": None, "color": LOOK},
        {"value": _BADLY, "color": "#FFD29B"},
        {"value": _WELL, "color": CALM},
    ]


def _of_the_worst() -> Select:
    return Select(schema.BASELINE, schema.RAW).where(chosen(schema.NODE, _WORST), node_states.told()).by(schema.NODE)


def _worst_nodes(cluster: Cluster) -> Built:
    query = _of_the_worst().take(newest(schema.OBSERVED))
    names = _training_nodes(cluster)
    cut = max(map(len, names)) > _NAMES_LETTERS
    steps = [step | ({"color": QUIET} if step["color"] == CALM else {}) for step in _share_steps()]
    return panels.stat(
        cluster,
        Face(
            "cohort_names", "",
            f"The {_WORST_SHOWN} nodes that sent least in the last 15 minutes, and their share of the cohort's median.",
            transport.training_note(cluster),
            "The Stragglers board ranks all nodes.",
            x=15, y=6, w=4, h=10, links=(to_board("stragglers"),), since=_RECENT,
        ),
        [query.per_series("Share of the median.", alias=f"$tag_{schema.NODE}")],
        missing=("no job", DIM),
        overrides=[panels.override("/.*/", thresholds={"mode": "absolute", "steps": steps})],
        transformations=[panels.renamed(f"^{telling_end(names, _NAMES_LETTERS)}$", "$1")] if cut else [],
        links=(to_board("training", "This node", node=clicked(schema.NODE)),),
        large=Large(25, _LETTERS, wide=True, rows=True, digits=0),
    )  # fmt: skip


def _strips(cluster: Cluster) -> Built:
    query = _of_the_worst().take(lowest(schema.OBSERVED))
    return panels.strips(
        cluster,
        Face(
            "cohort", "",
            "What the nodes beside it sent over the cohort's median: blue from 90 %, pale orange, below half orange.",
            f"{transport.training_note(cluster)} A gap means that no job ran, or blindness.",
            "Click a strip for observed, expected and limit.",
            x=19, y=6, w=5, h=10,
            links=(
                to_board("training", "Training"),
                node_states.stragglers(cluster),
            ),
        ),
        query.over_time(cluster, "Share of the median.", alias=f"$tag_{schema.NODE}", settled=False)
        .at_least(node_states.MINUTE)
        .at_most(_STRIP_POINTS),
        _share_steps(),
        missing="no job",
        links=(to_board("training", "This node", node=clicked(schema.NODE)),),
    )  # fmt: skip


def shown_pairs(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """Return the group pairs that the wall names: collectives first, then what `allowed` lists, in its order."""
    pairs = [(group.id, group.id) for group in cluster.groups_with(Role.TRAINING)]
    known = {group.id for group in cluster.groups}
    pairs += [(pair.src, pair.dst) for pair in cluster.allowed if pair.src in known and pair.dst in known]
    return tuple(dict.fromkeys(pairs))[:_PAIRS_SHOWN]


def _is_pair(src: str, dst: str) -> Condition:
    return all_of(is_in(schema.SRC_GROUP, [src]), is_in(schema.DST_GROUP, [dst]))


def _is_not_pair(src: str, dst: str) -> Condition:
    return any_of(not_in(schema.SRC_GROUP, [src]), not_in(schema.DST_GROUP, [dst]))


def _curve(cluster: Cluster, asked: Select, *tags: str, meaning: str, alias: str) -> Query:
    """Return bit/s over time; over six hours bins are minutes, so that the newest is whole and its number right."""
    rate = asked.take(bit_rate(schema.BYTES)).by(*tags)
    return rate.over_time(cluster, meaning, alias=alias).at_most(_CURVE_POINTS)


def _traffic(cluster: Cluster) -> Built:
    pairs = shown_pairs(cluster)
    titles, colours = short_titles(cluster), group_colours(cluster)
    traffic = Select(schema.TRAFFIC, schema.MINUTE)
    others = traffic.where(*(_is_not_pair(src, dst) for src, dst in pairs))
    queries = []
    if pairs:
        named = traffic.where(any_of(*(_is_pair(src, dst) for src, dst in pairs)))
        tags = (schema.SRC_GROUP, schema.DST_GROUP)
        alias = f"$tag_{schema.SRC_GROUP} → $tag_{schema.DST_GROUP}"
        queries.append(_curve(cluster, named, *tags, meaning="bit/s of a group pair.", alias=alias))
    queries.append(_curve(cluster, others, meaning="bit/s of all other group pairs.", alias="other"))
    steps: dict[str, int] = {}
    overrides = [panels.override("other", color=panels.fixed(OTHER_COLOUR))]
    for src, dst in pairs:
        name = f"within {titles[src]}" if src == dst else f"{titles[src]} → {titles[dst]}"
        colour = shade(colours[src], steps.setdefault(src, 0))
        steps[src] += 1
        overrides.append(panels.override(f"{src} → {dst}", displayName=name, color=panels.fixed(colour)))
    return panels.stat(
        cluster,
        Face(
            "traffic", "",
            "Bit/s between groups: the first pairs of cluster.yaml, everything else as other.",
            transport.note(cluster),
            "Click a line to explore that pair; the group matrix shows all pairs.",
            x=15, y=16, w=6, h=8,
            links=tuple(to_board(board) for board in BOARDS if board not in _OF_PANELS),
        ),
        queries,
        reduce="last",
        sparkline=True,
        missing=("no flows", DIM),
        overrides=overrides,
        links=(
            to_board("explore", "Explore this pair", src=clicked(schema.SRC_GROUP), dst=clicked(schema.DST_GROUP)),
        ),
        large=_CURVE,
    )  # fmt: skip


def _egress(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    rate = limits.exfil_volume * 8 / limits.exfil_window
    outside, watched = [*questions.approved_ids(cluster), EXTERNAL], questions.watched_ids(cluster)
    # The same bytes by pairs of groups: their series do not grow with the addresses outside.
    asked = Select(schema.TRAFFIC, schema.MINUTE).where(
        is_in(schema.SRC_GROUP, watched), is_in(schema.DST_GROUP, outside)
    )
    titles = short_titles(cluster)
    return panels.stat(
        cluster,
        Face(
            "egress", "",
            "Bit/s from model storage and sensitive groups to approved and unknown destinations.",
            f"Orange is the mean rate that reaches the alert's volume within {_minutes(limits.exfil_window)}.",
            "Egress & security names sources and destinations.",
            x=21, y=16, w=3, h=8,
            links=(to_board("egress"), to_board("ledger")),
        ),
        [_to_outside(cluster, asked, group_id) for group_id in outside],
        reduce="last",
        sparkline=True,
        mappings=_unless(watched),
        overrides=[
            *(panels.override(group_id, displayName=title) for group_id, title in titles.items()),
            panels.override(EXTERNAL, thresholds={"mode": "absolute", "steps": Limit(look=rate).steps()}),
        ],
        links=(to_board("egress"),),
        large=Large(34, _LETTERS, rows=True),
    )  # fmt: skip


def _to_outside(cluster: Cluster, asked: Select, group_id: str) -> Query:
    """Return bit/s to one group over time: 0, not a gap, where nothing left while other traffic was seen."""
    sent = asked.where(is_in(schema.DST_GROUP, [group_id])).take(bit_rate(schema.BYTES)).binned()
    rate = sent.columns[0]
    seen = Select(schema.TRAFFIC, schema.MINUTE).take(scaled(bit_rate(schema.BYTES), "0", rate.name, rate.unit))
    either = Select((sent, seen.binned())).take(total(rate))
    return either.over_time(cluster, "bit/s to a destination group.", alias=group_id).at_most(_CURVE_POINTS)


# -- last line: the pipeline -------------------------------------------------------------------------


def _flow_rate(cluster: Cluster) -> Query:
    """Return records a second; bins hold one window, so that the newest is whole and its number right."""
    window = cluster.bridge.window
    rate = Select(schema.EXPORTER_STATUS, schema.RAW).take(event_rate(schema.EXPORTER_RECORDS))
    query = rate.over_time(cluster, "Records a second.", alias="Flows/s")
    return replace(query, interval=window).at_most(_RECENT_SECONDS // window)


def _pipeline_strip(cluster: Cluster) -> list[Built]:
    silent = cluster.thresholds.exporter_silent
    names = [exporter.name for exporter in cluster.exporters]
    to_pipeline = (to_board("pipeline"),)
    exporters = Select(schema.EXPORTER_STATUS, schema.RAW)

    def strip(name: str, place: int, shows: str, cannot: str, then: str, *, since: str = _RECENT) -> Face:
        return Face(
            name, "", shows, cannot, then, x=4 * place, y=24, w=4, h=3, links=to_pipeline, since=since, by_arrival=True
        )

    ages = questions.exporter_ages_now().where(is_in(schema.EXPORTER, names))
    alive = Select(ages).take(count(schema.AGE, "alive")).where(compare(schema.AGE, "<", silent))
    return [
        panels.stat(
            cluster,
            strip(
                "exporters_alive", 0,
                f"Exporters of cluster.yaml whose records arrived within the last {silent} s.",
                "An exporter that sends, but lost half of its flows, counts as alive.",
                "The pipeline board shows age and loss of each.",
                since=panels.newest(cluster, silent),
            ),
            [alive.per_series("Exporters that are heard.", alias="Exporters")],
            unit=f"suffix: of {len(names)}",
            limit=Limit(act=len(names), below=True) if names else Limit(),
            missing=("blind", ACT) if names else ("none", DIM),
            large=_LINE,
        ),
        panels.stat(
            cluster,
            strip(
                "flow_rate", 1,
                "Flow records received from all exporters.",
                "Records lost before the collector are not in it.",
                "The pipeline board splits it by exporter.",
            ),
            [_flow_rate(cluster)],
            unit=Unit.COUNT,
            large=_LINE,
        ),
        panels.stat(
            cluster,
            strip(
                "lag", 2,
                "From the end of a flow to the arrival of its record: the slowest exporter's mean.",
                "It includes the exporter's own cache timeouts, which cannot be shortened here.",
                "The pipeline board splits it by exporter.",
            ),
            [exporters.take(highest(schema.LAG)).over_time(cluster, "Seconds of lag.", alias="Lag", settled=False)],
            large=_LINE,
        ),
        panels.stat(
            cluster,
            strip(
                "lost", 3,
                "Records missing by gaps in the exporters' sequence numbers.",
                "Exporters without sequence numbers lose in silence; NetFlow v9 losses are estimated.",
                "The pipeline board names the exporter.",
            ),
            [exporters.take(total(schema.SEQ_LOST)).per_series("Records lost on the way.", alias="Lost, 15 min")],
            limit=Limit(look=1),
            large=_LINE,
        ),
        panels.stat(
            cluster,
            strip(
                "late", 4,
                "Bytes whose window was closed when they came; they were added to it all the same.",
                "Numbers of the last minutes can still grow by as much.",
                "The pipeline board names the exporter.",
            ),
            [exporters.take(total(schema.LATE_BYTES)).per_series("Bytes that came late.", alias="Late, 15 min")],
            large=_LINE,
        ),
        panels.stat(
            cluster,
            strip(
                "dead_letters", 5,
                "Lines of the collector's output that were no flow records.",
                "Their traffic is in no number of this wall.",
                "The pipeline board gives the reasons; the dead-letter file has the lines.",
            ),
            [questions.dead_letters().per_series("Lines that were no flow records.", alias="Dead letters"), _zero()],
            transformations=panels.largest_as("Dead letters"),
            limit=Limit(look=1),
            large=_LINE,
        ),
    ]  # fmt: skip
