"""What Grafana asks InfluxDB for a board: its panels' queries with variables, time range and interval filled in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from store.influxql import LASTING, NICE_INTERVALS, filled

Json = dict[str, Any]

_PIXELS = 1000
_DURATION = re.compile(r"(\d+)([smhd])")
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}")
_ANCHORED = re.compile(r"/\^.*?\$/")


@dataclass(frozen=True)
class Asked:
    """One query of one panel with its range, ready for the store."""

    board: str
    panel: str
    ref: str
    query: str
    kind: str
    raw: str = field(repr=False)


def seconds(text: str) -> int:
    """Return Grafana's ``15m`` in seconds; ValueError if it is none."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text}: expected a duration such as 15m")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def own_range(panel: Json) -> str:
    """Return the length of a panel's own range; empty where it has the board's."""
    lengths = [found[1] for target in panel.get("targets", []) if (found := LASTING.search(target.get("query", "")))]
    return str(panel.get("timeFrom") or next(iter(lengths), ""))


def expand(
    raw: str, *, start: int, end: int, minimum: str, variables: Mapping[str, str], points: int | None = None
) -> str:
    """Return a query as Grafana sends it: variables, time filter and interval filled in.

    Args:
        raw: the panel's text.
        start: begin of the range, epoch seconds.
        end: its end.
        minimum: the panel's smallest interval, such as ``1m``; empty for none.
        variables: value of each variable as its format writes it.
        points: bins in the range, about; by default as many as a wide panel has pixels.

    Raises:
        ValueError: something of Grafana's is left over.
    """

    def value(match: re.Match[str]) -> str:
        return variables[match[1]]

    variables = {**variables, "__from": str(start * 1000), "__to": str(end * 1000)}
    text = _VARIABLE.sub(value, raw)
    interval = max(_rounded((end - start) / (points or _PIXELS)), seconds(minimum) if minimum else 1)
    text = filled(text, start, end, interval * 1000)
    if "$" in _ANCHORED.sub("", text):
        raise ValueError(f"left over: {text}")
    return text


def _rounded(wanted: float) -> int:
    """Return the interval that Grafana rounds to: the nearest, but a day only from a day on."""
    if wanted >= NICE_INTERVALS[-1]:
        return NICE_INTERVALS[-1]
    return next(
        (short for short, long in pairwise(NICE_INTERVALS[:-1]) if wanted < (short + long) / 2), NICE_INTERVALS[-2]
    )


def asked(board: Json, now: int, variables: Mapping[str, str], span: int | None = None) -> Iterator[Asked]:
    """Yield every query of a board.

    Args:
        board: its JSON.
        now: end of the range, epoch seconds.
        variables: see `expand`.
        span: seconds of the range; by default the board's own. Panels with a range of their own keep it.
    """
    since = board["time"]["from"].removeprefix("now-")
    for panel in board["panels"]:
        # Today so far: a day, for the queries' sake.
        own = own_range(panel)
        length = seconds((own or since).replace("now/d", "24h")) if own or span is None else span
        for target in panel.get("targets", []):
            text = expand(
                target["query"],
                start=now - length,
                end=now,
                minimum=panel.get("interval", ""),
                variables=variables,
                points=panel.get("maxDataPoints"),
            )
            # Panels of a wall have no title.
            said = panel["title"] or panel["description"].partition(".")[0]
            yield Asked(board["uid"], said, target["refId"], text, panel["type"], target["query"])


def first_choices(board: Json) -> dict[str, str]:
    """Return the values that a board's variables have when it is opened: everything, where that is a choice."""
    return {
        one["name"]: one.get("allValue", ".*") if one.get("includeAll") else one["current"]["value"]
        for one in board["templating"]["list"]
    }
