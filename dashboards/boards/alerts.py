"""The history of alerts: what fired, how often by rule and by source, how soon acknowledged, what was false."""

from cluster.model import Cluster, EventSeverity
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, row, to_alerts, to_board, to_rule
from dashboards.palette import ACT, DIM, LOOK, QUIET
from dashboards.panels import NO_LIMIT, TIME, Built, Cell, Face, Limit, TableOrder
from store import schema
from store.influxql import Select, Unit, beside, chosen, count, labelled, middle, says, total

BOARD = "alerts"

_ROWS = 50
_COUNT, _FALSE = "alerts", "false"
_COLOURS = {EventSeverity.CRITICAL: ACT, EventSeverity.WARNING: LOOK, EventSeverity.INFO: QUIET}
_NOT_TOLD = "Grafana does not say who has seen an alert; `clusterflow alerts mark` does."


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (*_tiles(cluster), _history(cluster), _over_time(cluster), *_counts(cluster)),
        since="7d",
        variables=(var.choices(var.SEVERITY, "Severity", {one.value: one.value for one in EventSeverity}),),
    )


def _alerts() -> Select:
    return questions.alerts().where(chosen(schema.SEVERITY, var.SEVERITY))


def _tiles(cluster: Cluster) -> list[Built]:
    def tile(asked: Select, face: Face, limit: Limit = NO_LIMIT, missing: str = "0") -> Built:
        return panels.stat(
            cluster, face, [asked.per_series()], limit=limit, missing=(missing, DIM), links=(), text="auto"
        )

    firing = _alerts().where(says(schema.ALERT_STATE, schema.FIRING))
    return [
        tile(
            firing.take(count(schema.ALERT_STATE)),
            Face(
                "firing", "Firing", "Alerts that began in this time range and have not ended.",
                "One that began earlier is not counted; silences change nothing here.",
                "The table below lists the firing ones, with where to look.",
                x=0, y=0, w=6, h=4, links=(to_alerts(),),
            ),
            Limit(look=1),
        ),
        tile(
            _alerts().take(count(schema.ALERT_STATE)),
            Face(
                "fired", "Fired", "Alerts that began in this time range.",
                "While `clusterflow deliver` was down with `alerts: grafana`, Grafana's alerts may be missing here.",
                "Below, by rule and by source.",
                x=6, y=0, w=6, h=4, links=(to_alerts(),),
            ),
        ),
        tile(
            _alerts().take(total(schema.FALSE_ALERT)),
            Face(
                "marked_false", "Marked false", "Alerts of this time range that somebody marked as false.",
                "An unmarked alert may still be false.",
                "Mark one with `clusterflow alerts mark ID --false`; a rule with many needs another threshold.",
                x=12, y=0, w=6, h=4, links=(to_alerts(),),
            ),
        ),
        tile(
            _alerts().take(middle(schema.ACKNOWLEDGE_SECONDS)),
            Face(
                "acknowledge", "Time to acknowledge", "From an alert's begin until somebody had seen it: the median.",
                _NOT_TOLD, "Mark one with `clusterflow alerts mark ID --acknowledged`.",
                x=18, y=0, w=6, h=4, links=(to_alerts(),),
            ),
            missing="not known",
        ),
    ]  # fmt: skip


def _history(cluster: Cluster) -> Built:
    shown = (
        *questions.ALERT_COLUMNS, schema.FIRED_SECONDS, schema.FALSE_ALERT, schema.MARKED_WHY, schema.MAINTENANCE,
        schema.INCIDENT,
    )  # fmt: skip
    query = _alerts().take(*map(beside, shown), labelled(schema.SEVERITY), labelled(schema.RULE)).newest_rows(_ROWS)
    severities = panels.words({one.value: (one.value, colour) for one, colour in _COLOURS.items()})
    pages = cluster.delivery.incident_pages()
    incident = (Link("Incident", f"{pages}{row(schema.INCIDENT.name)}", is_away=True),) if pages else ()
    states = panels.words({schema.FIRING: (schema.FIRING, LOOK), schema.RESOLVED: (schema.RESOLVED, DIM)})
    return panels.table(
        cluster,
        Face(
            "history", "Alert history", "One row an alert, the newest first, with its latest texts.",
            f"At most {_ROWS}; `clusterflow alerts list` has all of two years.",
            "A click on what fired opens the rule, on the id its page; `clusterflow alerts mark` takes the id.",
            x=0, y=4, w=24, h=13, links=(to_alerts(),),
        ),
        [query],
        [
            panels.Column(TIME, "Since", Unit.MOMENT, width=155),
            panels.Column(schema.SEVERITY, "Severity", cell=Cell.COLOUR, mappings=(severities,), width=80),
            panels.Column(schema.ALERT_TITLE.name, "What", links=(to_rule(row(schema.RULE)),)),
            panels.Column(schema.ALERT_SOURCE.name, "Source"),
            panels.Column(schema.ALERT_DESTINATION.name, "Destination"),
            panels.Column(schema.BYTES_TEXT.name, "Bytes", width=120),
            panels.Column(schema.DURATION_TEXT.name, "Duration", width=85),
            panels.Column(schema.ALERT_STATE.name, "State", cell=Cell.COLOUR, mappings=(states,), width=75),
            panels.Column(schema.FIRED_SECONDS.name, "Fired for", Unit.SECONDS, width=84),
            panels.Column(
                schema.FALSE_ALERT.name, "False", width=55,
                mappings=(panels.words({1: ("yes", LOOK), 0: ("", DIM)}),),
            ),
            panels.Column(schema.MARKED_WHY.name, "Why", width=65),
            panels.Column(schema.MAINTENANCE.name, "Maintenance", width=105),
            panels.Column(schema.INCIDENT.name, "Id", links=incident, width=78),
            panels.Column(schema.RULE, "Rule", width=110),
        ],
        missing="no alert in this time range",
        limit_rows=0,
    )  # fmt: skip


def _over_time(cluster: Cluster) -> Built:
    query = _alerts().take(count(schema.ALERT_STATE, _COUNT)).by(schema.SEVERITY)
    return panels.time_series(
        cluster,
        Face(
            "over_time", "Alerts an hour", "How many alerts began in each hour, or longer bin, by severity.",
            "Many at once may be one cause: the table above says of what.",
            "Compare with the traffic of that hour.",
            x=0, y=17, w=8, h=9, links=(to_board("noc_wall"),),
        ),
        [query.over_time(cluster, alias=f"$tag_{schema.SEVERITY}", settled=False)],
        stacked=True,
        bars=True,
        overrides=[panels.override(one.value, color=panels.fixed(colour)) for one, colour in _COLOURS.items()],
        missing="none",
        links=(),
    )  # fmt: skip


def _counts(cluster: Cluster) -> list[Built]:
    counted = _alerts().take(count(schema.ALERT_STATE, _COUNT), total(schema.FALSE_ALERT, _FALSE))
    columns = [
        panels.Column(_COUNT, "Alerts", Unit.COUNT, Cell.BAR, width=160),
        panels.Column(_FALSE, "False", Unit.COUNT, width=80),
    ]
    faces = (
        (
            Face(
                "by_rule", "By rule", "How often each rule fired in this time range, and how many were marked false.",
                "A rule that is gone keeps its past.", "A rule that fires daily needs another threshold or a fix.",
                x=8, y=17, w=8, h=9, links=(to_alerts(),),
            ),
            panels.Column(schema.RULE, "Rule", links=(to_rule(row(schema.RULE)),)),
        ),
        (
            Face(
                "by_source", "By source", "How often each node, address or part of the pipeline was the source.",
                "Alerts of a whole job stand under the job, those about the pipeline under clusterflow.",
                "A source with many rules is the one to look at first.",
                x=16, y=17, w=8, h=9, links=(to_board("egress"),),
            ),
            panels.Column(schema.SRC, "Source", missing="clusterflow"),
        ),
    )  # fmt: skip
    return [
        panels.table(
            cluster,
            face,
            [counted.by(column.name).per_series("Alerts.").as_table()],
            [column, *columns],
            order=TableOrder(_COUNT),
        )
        for face, column in faces
    ]
