"""What the rules about stored verdicts share: each number is a field of the newest row of a series."""

from collections.abc import Mapping

from rules.rule import Measure
from store.influxql import Condition, Query, Select, newest
from store.schema import Field


def measures(
    stored: Select, fields: Mapping[str, Field], since: int, of: str, *conditions: Condition
) -> tuple[Measure, ...]:
    """Return the fields of each series' newest row, a measure each.

    Args:
        stored: the rows, grouped by the alerts' labels; nothing taken yet.
        fields: by the measures' names; the first is compared with the threshold.
        since: how far the newest row may lie back, seconds.
        of: what a series is about, in words.
        conditions: which the newest row must fulfil.
    """
    read = [stored.measurement.field(name) for condition in conditions for name in condition.fields]

    def query(field: Field) -> Query:
        rows = stored.take(*map(newest, dict.fromkeys((*read, field))))
        if conditions:
            rows = Select(rows).take(newest(field)).where(*conditions).by(*stored.tags)
        return rows.per_series(f"{field.text}, of {of}.")

    return tuple(Measure(name, query(field), since) for name, field in fields.items())
