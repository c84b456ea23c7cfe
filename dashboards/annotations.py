"""Events drawn over the charts of a board: what several boards share."""

from typing import Any

from cluster import schema
from cluster.model import Cluster
from dashboards import panels
from dashboards.palette import DIM, LOOK
from dashboards.queries import Column, Condition, Select, Unit, identifier

Json = dict[str, Any]


def marks(cluster: Cluster, name: str, query: str, *, text: str, tags: tuple[str, ...], colour: str) -> Json:
    """Return an annotation; Grafana wants its query in two places.

    Args:
        cluster: whose store is asked.
        name: on the switch above the board.
        query: InfluxQL; one row an event.
        text: column whose value is the event's text.
        tags: columns whose values stand below it; empty ones are left out.
        colour: of the line.
    """
    asked = {
        "query": query,
        "textColumn": text,
        "tagsColumn": ",".join(tags),
        "titleColumn": "",
        "rawQuery": True,
    }
    return {
        "name": name,
        "datasource": panels.source(cluster),
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "target": {**asked, "refId": "Anno", "resultFormat": "table", "fromAnnotations": True},
        **asked,
    }


def job_events(cluster: Cluster, *conditions: Condition) -> Json:
    """Return starts and stops of the jobs that the conditions let pass, and how they ended."""
    event, outcome = (
        Column(identifier(field.name), field.name, Unit.COUNT, (field.name,))
        for field in (schema.JOB_EVENT, schema.JOB_OUTCOME)
    )
    # What was taken back has an empty text.
    happened = Condition(f"{identifier(schema.JOB_EVENT.name)} != ''", (), (schema.JOB_EVENT.name,))
    events = Select(schema.JOB_STATUS, schema.RAW).take(event, outcome).where(happened, *conditions)
    return marks(
        cluster,
        "Job start and stop",
        events.by(schema.JOB, schema.JOB_CLASS).text(),
        text=schema.JOB_EVENT.name,
        tags=(schema.JOB, schema.JOB_CLASS, schema.JOB_OUTCOME.name),
        colour=DIM,
    )


def cohort_events(cluster: Cluster, *conditions: Condition) -> Json:
    """Return where the verdict on a job as a whole changed, with what it became, of the same jobs."""
    name = schema.COHORT_EVENT.name
    event = Column(identifier(name), name, Unit.COUNT, (name,))
    changed = Condition(f"{identifier(name)} != ''", (), (name,))
    events = Select(schema.COHORT, schema.RAW).take(event).where(changed, *conditions)
    return marks(
        cluster,
        "Verdict on the job",
        events.by(schema.JOB, schema.JOB_CLASS).text(),
        text=name,
        tags=(schema.JOB, schema.JOB_CLASS),
        colour=LOOK,
    )
