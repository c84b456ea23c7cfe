"""Links from panel to panel: always with the time range, and with the labels that were clicked.

Grafana fills in ``${__url_time_range}``, ``${__field.labels.TAG}`` (time series) and ``${__data.fields.TAG}`` (tables).
"""

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from dashboards.registry import BOARDS

_ALERTS = "/alerting/list"
_BOARD_RANGE = "${__url_time_range}"


@dataclass(frozen=True, slots=True)
class Link:
    """Where a click leads. `url` is relative to Grafana, so that boards work behind any address, but for `is_away`."""

    title: str
    url: str
    is_away: bool = False

    def json(self) -> dict[str, Any]:
        """Return Grafana's form, for panel links and data links alike."""
        return {"title": self.title, "url": self.url, "targetBlank": self.is_away}

    def beginning(self, column: str) -> "Link":
        """Return the link with a range that begins at the clicked row's moment, not with the board's."""
        return replace(self, url=self.url.replace(_BOARD_RANGE, f"from={_moment(column)}&to=${{__to}}"))


def to_board(
    board: str,
    title: str = "",
    *,
    keep: tuple[str, ...] = (),
    span: tuple[str, str] | None = None,
    **variables: str | tuple[str, ...],
) -> Link:
    """Link to a board with some of its variables set.

    Args:
        board: its name in the registry.
        title: the link's text; by default the board's title.
        keep: variables of this board whose choices go along.
        span: columns of the clicked row with the begin and the end of another time range, in epoch ms.
        variables: variable -> value, or several, which may be one of Grafana's ``${...}`` expressions.
    """
    found = BOARDS[board]
    chosen = "".join(f"&${{{name}:queryparam}}" for name in keep)
    chosen += "".join(
        f"&var-{name}={quote(value, safe='${}.:_')}"
        for name, values in variables.items()
        for value in ((values,) if isinstance(values, str) else values)
    )
    times = _BOARD_RANGE
    if span is not None:
        times = "&".join(f"{name}={_moment(at)}" for name, at in zip(("from", "to"), span, strict=True))
    return Link(title or found.title, f"/d/{found.uid}?{times}{chosen}")


def to_flows(pages: str, *, is_now: bool = True, begin: str = "", **words: str) -> Link:
    """Link to a question to the flow archive.

    Args:
        pages: its address.
        is_now: whether it is about the board's time range; else the words have one of their own.
        begin: column of the clicked row with the begin of that range, in epoch ms; by default the board's.
        words: of ``clusterflow flows``, with values as of `to_board`.
    """
    since = _moment(begin) if begin else "${__from}"
    times = {"from": since, "to": "${__to}"} if is_now else {}
    asked = "&".join(f"{word}={quote(value, safe='${}.:_')}" for word, value in {**words, **times}.items())
    return Link("Conversations in the flow archive", f"{pages}?{asked}", is_away=True)


def to_alerts() -> Link:
    """Link to Grafana's list of alert rules."""
    return Link("All alert rules", _ALERTS)


def to_rule(rule: str) -> Link:
    """Link to Grafana's page of a rule, by its id or an expression for it."""
    return Link("Rule", f"/alerting/grafana/{rule}/view")


def clicked(tag: str) -> str:
    """The value of a tag of the clicked series."""
    return f"${{__field.labels.{tag}}}"


def row(column: str) -> str:
    """The text of a column in the clicked row. Only for columns without value mappings: it is the mapped text."""
    return f"${{__data.fields.{column}}}"


def _moment(column: str) -> str:
    return f"${{__data.fields.{column}.numeric}}"


CELL = "${__value.raw}"
"""The clicked cell as it is stored, whatever words it shows."""
