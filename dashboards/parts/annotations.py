"""Events drawn over the charts of a board: what several boards share.

Grafana 12 takes an InfluxQL answer for events column by column, and puts the labels of grouped series into the columns'
names, where it then finds the names of tags in all of them: a number is split like a text, and nothing is drawn. So
events are never grouped: tags are selected beside the field, and columns are named ``measurement.column``, as it does.
An event with a value missing is left out, so each question takes one field.
"""

from typing import Any

from cluster.model import Cluster, Outcome
from dashboards import panels
from dashboards import variables as var
from dashboards.palette import DIM, LOOK
from store import schema
from store.influxql import Condition, Select, any_of, beside, labelled, lasts_up_to, narrowed, says

Json = dict[str, Any]

_NO_FAILURE = (Outcome.COMPLETED, Outcome.UNKNOWN)
_AMISS = (schema.CohortState.SLOW, schema.CohortState.STALLED)
_FEW = 2 * 86_400
"""Seconds of the longest range over which starts and stops of all jobs are marked: over a week they hide the charts."""


def marks(
    cluster: Cluster,
    name: str,
    select: Select,
    *,
    text: str,
    tags: tuple[str, ...],
    colour: str,
) -> Json:
    """Return an annotation; Grafana wants its query in two places.

    Args:
        cluster: whose store is asked.
        name: title of each event.
        select: a measurement with one field taken and nothing grouped; one row an event.
        text: the field or tag whose value is the event's text.
        tags: those whose values stand below it; empty ones are left out.
        colour: of the line.
    """
    named = (tag for tag in dict.fromkeys((text, *tags)) if tag not in {column.name for column in select.columns})
    columns = map(labelled, named)
    asked = {
        "query": select.take(*columns).text(),
        "textColumn": f".{text}",
        "tagsColumn": ",".join(f".{tag}" for tag in tags),
        "titleColumn": "",
        "rawQuery": True,
    }
    return {
        "name": name,
        "datasource": panels.source(cluster),
        "enable": True,
        # Its switch would take a place in the line of choices.
        "hide": True,
        "iconColor": colour,
        "mappings": {"title": {"source": "text", "value": name}},
        "target": {**asked, "refId": "Anno", "fromAnnotations": True},
        **asked,
    }


def _happened(field: schema.Field) -> Select:
    """Return the rows that tell of something; what was taken back has an empty text."""
    measurement = schema.COHORT if field is schema.COHORT_EVENT else schema.JOB_STATUS
    return Select(measurement, schema.RAW).take(beside(field)).where(says(field, "", "!="))


def job_events(cluster: Cluster, *conditions: Condition) -> Json:
    """Return starts and stops of the jobs that the conditions let pass: of all jobs for short ranges only."""
    are_few = any_of(narrowed(var.JOB), lasts_up_to(_FEW))
    return marks(
        cluster,
        "Job start and stop",
        _happened(schema.JOB_EVENT).where(*conditions, are_few),
        text=schema.JOB_EVENT.name,
        tags=(schema.JOB, schema.JOB_CLASS),
        colour=DIM,
    )


def job_failures(cluster: Cluster, *conditions: Condition) -> Json:
    """Return the ends of jobs that did not complete, with how they ended, of the same jobs."""
    badly = (says(schema.JOB_OUTCOME, well.value, "!=") for well in _NO_FAILURE)
    return marks(
        cluster,
        "Job did not complete",
        _happened(schema.JOB_OUTCOME).where(*badly, *conditions),
        text=schema.JOB_OUTCOME.name,
        tags=(schema.JOB, schema.JOB_CLASS),
        colour=LOOK,
    )


def cohort_events(cluster: Cluster, *conditions: Condition) -> Json:
    """Return where a job as a whole became slow or stalled, of the same jobs; that it is well, or over, is no news."""
    became = any_of(*(says(schema.COHORT_EVENT, schema.COHORT_STATE_WORDS[state]) for state in _AMISS))
    return marks(
        cluster,
        "Verdict on the job",
        _happened(schema.COHORT_EVENT).where(became, *conditions),
        text=schema.COHORT_EVENT.name,
        tags=(schema.JOB, schema.JOB_CLASS),
        colour=LOOK,
    )
