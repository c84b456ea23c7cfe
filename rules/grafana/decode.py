"""Rules read back from a file that `encode` wrote: what Grafana has, or had, not what would be written now.

Only the form that we write is read: raw InfluxQL, one reduction a query, one threshold.
"""

import re
import string
from dataclasses import replace
from typing import Any

import yaml

from app.errors import UserError
from app.units import parse_duration
from cluster.document import Parser
from dashboards.registry import PanelRef
from rules.grafana.read_query import select_of
from rules.rule import CONDITION, Comparison, ErrorPolicy, Measure, NoDataPolicy, Reducer, Rule, Severity, Threshold
from store.influxql import Query, Shape, Unit

_LETTER = re.compile(r"\$values\.([A-Z])\b")
_OURS = {"__dashboardUid__", "__panelId__", "runbook_url"}
_LONGEST = 200
"""Characters of an error's own words that are shown."""


def rules_from_text(text: str, source: str) -> tuple[Rule, ...]:
    """Return the rules of a provisioning file.

    Args:
        text: of the file.
        source: its name in errors.

    Raises:
        UserError: it is no such file, or holds a rule of another form.
    """
    try:
        content = yaml.load(text, Parser)  # noqa: S506 - a safe loader
        groups = content["groups"]
        return tuple(_rule(entry, group, source) for group in groups for entry in group["rules"])
    except (yaml.YAMLError, LookupError, AttributeError, TypeError, ValueError, StopIteration) as error:
        # An error may repeat a whole value, which may be of any length.
        what = " ".join(f"{type(error).__name__} {error}".split())
        what = f"{what[:_LONGEST]} ..." if len(what) > _LONGEST else what
        raise UserError(
            f"{source}: not rules as `clusterflow build` writes them: {what}", "alerting/rules.yaml is meant"
        ) from error


def _rule(entry: dict[str, Any], group: dict[str, Any], source: str) -> Rule:
    data = {item["refId"]: item for item in entry["data"]}
    condition = data[CONDITION]["model"]
    asked = [item for item in entry["data"] if "query" in item["model"]]
    reductions = {item["model"]["expression"]: item["model"] for item in entry["data"] if _is_reduction(item)}
    queries = [_query(item["model"]) for item in asked]
    names = _names(queries)
    measures = tuple(
        Measure(name, query, *_range(item), Reducer(reductions[item["refId"]]["reducer"]))
        for name, query, item in zip(names, queries, asked, strict=True)
    )
    if condition["type"] != "threshold" or condition["expression"] != reductions[asked[0]["refId"]]["refId"]:
        raise UserError(f"{source}: {entry['uid']}: the condition is no threshold of the first query")
    letters = {reductions[item["refId"]]["refId"]: name for name, item in zip(names, asked, strict=True)}
    (evaluator,) = (one["evaluator"] for one in condition["conditions"])
    labels = {name: _literal(text) for name, text in entry["labels"].items()}
    rule_id, severity = labels.pop("rule"), Severity(labels.pop("severity"))
    annotations = entry["annotations"]
    return Rule(
        id=rule_id,
        title=_literal(entry["title"]),
        family=_literal(group["name"]),
        severity=severity,
        measures=measures,
        threshold=Threshold(rule_id, Comparison(evaluator["type"]), float(evaluator["params"][0])),
        annotations=tuple(
            (name, _LETTER.sub(lambda match: f"$values.{letters[match[1]]}", text))
            for name, text in annotations.items()
            if name not in _OURS
        ),
        panel=PanelRef(annotations["__dashboardUid__"], int(annotations["__panelId__"])),
        labels=tuple(labels.items()),
        pending_for=_seconds(entry["for"]),
        keep_firing_for=_seconds(entry["keepFiringFor"]),
        missing_evaluations=int(entry["missing_series_evals_to_resolve"]),
        no_data=NoDataPolicy(entry["noDataState"]),
        on_error=ErrorPolicy(entry["execErrState"]),
        interval=_seconds(group["interval"]),
    )


def _literal(text: str) -> str:
    """Return what `encode.literal` was given."""
    return text.replace("$$", "$")


def _is_reduction(item: dict[str, Any]) -> bool:
    return bool(item["model"].get("type") == "reduce")


def _query(model: dict[str, Any]) -> Query:
    text, shape = model["query"], Shape(model["resultFormat"])
    select = select_of(text)
    if select is not None:
        return replace(select.per_series(), text=text, shape=shape)
    seconds = int(model["intervalMs"]) // 1000 if "$__interval" in text else 0
    return Query(text, Unit.COUNT, "", (), "", shape=shape, interval=seconds)


def _range(item: dict[str, Any]) -> tuple[int, int]:
    return int(item["relativeTimeRange"]["from"]), int(item["relativeTimeRange"]["to"])


def _names(queries: list[Query]) -> list[str]:
    """Return a name for each query: that of its column, if texts can name it and it is the only one."""
    found = [query.select.columns[0].name if query.select else "" for query in queries]
    letters = iter(f"measure_{letter}" for letter in string.ascii_lowercase)
    usable = re.compile("[a-z_]+")
    return [name if usable.fullmatch(name) and found.count(name) == 1 else next(letters) for name in found]


def _seconds(text: str) -> int:
    return int(parse_duration(str(text)))
