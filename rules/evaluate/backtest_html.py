"""A backtest as one HTML file: nothing is loaded from anywhere, it opens from a mail or a change request."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from app.units import format_moment
from dashboards import palette
from rules.common.texts import DESTINATION, FACTS, SOURCE
from rules.evaluate.backtest_report import Report, total
from rules.evaluate.states import FIRING, State
from rules.evaluate.timeline import Firing, Span
from rules.evaluate.truth import Score
from rules.grafana.go_numbers import humanize_duration
from rules.rule import Rule, labels_of_grafana
from store import schema

_COLOURS = {
    State.PENDING: palette.LOOK,
    State.ALERTING: palette.ACT,
    State.RECOVERING: palette.DIM,
    State.NO_DATA: palette.BLIND,
    State.ERROR: palette.BLIND,
}
_INCIDENT = palette.QUIET
_MOST_SERIES = 60
_MOST_ROWS = 500
_ROW_PIXELS, _FRAME_PIXELS = 24, 120

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; color: #1f2430; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #dfe2e8; vertical-align: top; }
th { font-weight: 600; } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
p.note, ul.note { color: #5a6272; } .bad { color: #b3261e; font-weight: 600; } .chosen { font-weight: 600; }
code { font-size: 12px; }
"""


def html(report: Report) -> str:
    """Return the whole document."""
    stretch = report.stretch
    title = f"Backtest of {report.cluster.name}, {_time(stretch.start)} to {_time(stretch.end)} UTC"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="note">{escape(report.source)}. {_counts(report)}</p>',
        *_score_part(report),
        "<h2>Rules</h2>",
        _rules_table(report),
        "<h2>When alerts were what</h2>",
        *_timeline_part(report),
        *_sweep_part(report),
        *_difference_part(report),
        "<h2>Alerts</h2>",
        _firings_table(report, report.run.firings),
        "<h2>What this rests on</h2>",
        '<ul class="note">' + "".join(f"<li>{escape(line)}</li>" for line in report.assumptions()) + "</ul>",
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )


def _counts(report: Report) -> str:
    return f"{len(report.run.rules)} rules, {len(report.run.firings)} alerts."


# Tables -------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: frozenset[int] = frozenset()) -> str:
    """Return a table; cells are HTML already."""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = (' class="number"' if position in numbers else "" for position in range(len(row)))
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def _rules_table(report: Report) -> str:
    rows = []
    for rule in report.run.rules:
        effort, fired = report.run.efforts[rule.id], report.run.timeline.of_rule(rule.id)
        seconds = sum(firing.seconds(report.stretch.end) for firing in fired)
        share = f"{effort.evaluated:,} of {effort.ticks:,}"
        rows.append(
            (
                f"<code>{escape(rule.id)}</code>",
                escape(rule.title),
                rule.severity.value,
                str(len(fired)),
                humanize_duration(seconds) if fired else "",
                share,
            )
        )
    heads = ("rule", "title", "severity", "alerts", "firing for", "evaluations that mattered")
    return _table(heads, rows, frozenset({3, 4, 5}))


def _firings_table(report: Report, firings: Sequence[Firing]) -> str:
    if not firings:
        return '<p class="note">None.</p>'
    judged = {id(one.firing): one for score in report.scores for one in score.judged}
    rows = []
    for firing in firings[:_MOST_ROWS]:
        facts = firing.worst.annotations
        cause = []
        if report.truth is not None:
            one = judged.get(id(firing))
            named = one.cause.incident if one is not None and one.cause is not None else None
            cause = ['<span class="bad">nothing</span>' if named is None else escape(named)]
        ended = "fires still" if firing.ended_at is None else humanize_duration(firing.seconds(report.stretch.end))
        rows.append(
            (
                _time(firing.fired_at),
                f"<code>{escape(firing.rule)}</code>",
                *(escape(facts.get(name, "")) for name in FACTS),
                ended,
                *cause,
            )
        )
    heads = ("began (UTC)", "rule", *FACTS, "fired for", *(("cause",) if report.truth is not None else ()))
    more = len(firings) - len(rows)
    note = f'<p class="note">and {more} more: see the JSON</p>' if more > 0 else ""
    return _table(heads, rows) + note


def _score_part(report: Report) -> list[str]:
    if report.truth is None:
        return []
    scores = [*report.scores, total(report.scores)]
    rows = [_score_row(score) for score in scores if score.due or score.judged]
    heads = ("rule", "alerts due", "found", "missed", "false alerts", "precision", "recall", "median delay")
    missed = [one for score in report.scores for one in score.missed]
    lines = [
        f"<li>{escape(one.incident)}: <code>{escape(one.rule)}</code>, due {_time(one.due)}</li>" for one in missed
    ]
    return [
        "<h2>Against what was staged</h2>",
        _table(heads, rows, frozenset(range(1, len(heads)))),
        f'<p class="bad">Missed:</p><ul>{"".join(lines)}</ul>' if lines else "",
    ]


def _score_row(score: Score) -> tuple[str, ...]:
    def bad(count: int) -> str:
        return f'<span class="bad">{count}</span>' if count else "0"

    return (
        f"<code>{escape(score.rule)}</code>",
        str(score.due),
        str(score.due - len(score.missed)),
        bad(len(score.missed)),
        bad(len(score.false)),
        "" if score.precision is None else f"{score.precision:.0%}",
        "" if score.recall is None else f"{score.recall:.0%}",
        "" if score.delay is None else f"{score.delay:.0f} s",
    )


def _difference_part(report: Report) -> list[str]:
    found = report.difference
    if found is None:
        return []
    named = {"changed": found.change.changed, "gone": found.change.only_before, "new": found.change.only_now}
    words = "; ".join(f"{what}: {', '.join(ids)}" for what, ids in named.items() if ids) or "the rules are alike"
    moved = [
        (f"<code>{escape(one.rule)}</code>", escape(_about(one)), _spell(one), _spell(two)) for one, two in found.moved
    ]
    counts = (
        f"{len(found.added)} alerts added, {len(found.lost)} lost, {len(found.moved)} at other times, "
        f"{found.same} alike"
    )
    return [
        f"<h2>Against {escape(found.before)}</h2>",
        f"<p>{escape(words)}. {counts}.</p>",
        *(("<h3>Added</h3>", _firings_table(report, found.added)) if found.added else ()),
        *(("<h3>Lost</h3>", _firings_table(report, found.lost)) if found.lost else ()),
        *(("<h3>At other times</h3>", _table(("rule", "alert", "before", "now"), moved)) if moved else ()),
    ]


def _spell(firing: Firing) -> str:
    ended = "fires still" if firing.ended_at is None else _time(firing.ended_at)
    return f"{_time(firing.fired_at)} to {ended}"


# Pictures -----------------------------------------------------------------------------------------


def _figure(figure: go.Figure, height: int) -> str:
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    options = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(include_plotlyjs=False, full_html=False, config=options))


def _timeline_part(report: Report) -> list[str]:
    rules = {rule.id: rule for rule in report.run.rules}
    every = report.run.timeline.spans
    rows = sorted(every, key=lambda key: (list(rules).index(key[0]), every[key][0].start))
    if not rows and report.truth is None:
        return ['<p class="note">Every alert was Normal all the time.</p>']
    firings: dict[tuple[str, Any], list[Firing]] = {}
    for firing in report.run.firings:
        firings.setdefault((firing.rule, _key(firing)), []).append(firing)
    figure = go.Figure()
    bars: dict[State, list[tuple[str, Span, str]]] = {}
    for rule_id, labels in rows[:_MOST_SERIES]:
        name = _series_name(rules[rule_id], labels)
        for span in every[rule_id, labels]:
            about = _hover(span, firings.get((rule_id, labels), []))
            bars.setdefault(span.state, []).append((name, span, about))
    for state in State:
        if state in bars:
            _add_bars(figure, report, state.value, _COLOURS[state], bars[state])
    if report.truth is not None:
        _add_incidents(figure, report)
    names = [_series_name(rules[rule_id], labels) for rule_id, labels in rows[:_MOST_SERIES]]
    staged = ["staged"] if report.truth is not None else []
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_xaxes(type="date", range=[_stamp(report.stretch.start), _stamp(report.stretch.end)])
    order = list(dict.fromkeys([*staged, *names]))
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], automargin=True)
    more = len(rows) - _MOST_SERIES
    note = f'<p class="note">and {more} more series: see the JSON</p>' if more > 0 else ""
    return [
        '<p class="note">Drag to zoom in, double-click to see all; the words stand under the mouse.</p>',
        _figure(figure, _FRAME_PIXELS + _ROW_PIXELS * (len(order) + 1)),
        note,
    ]


def _add_bars(figure: go.Figure, report: Report, name: str, colour: str, bars: Sequence[tuple[str, Span, str]]) -> None:
    ends = [report.stretch.end if span.end is None else span.end for _, span, _ in bars]
    figure.add_trace(
        go.Bar(
            name=name,
            orientation="h",
            y=[row for row, _, _ in bars],
            base=[_stamp(span.start) for _, span, _ in bars],
            # Lengths on a time axis are milliseconds.
            x=[(end - span.start) * 1000 for end, (_, span, _) in zip(ends, bars, strict=True)],
            marker={"color": colour, "line": {"width": 0}},
            hovertext=[about for _, _, about in bars],
            hoverinfo="text",
        )
    )


def _add_incidents(figure: go.Figure, report: Report) -> None:
    truth = report.truth
    if truth is None or not truth.incidents:
        return
    figure.add_trace(
        go.Bar(
            name="staged",
            orientation="h",
            y=["staged"] * len(truth.incidents),
            base=[_stamp(one.start) for one in truth.incidents],
            x=[(one.end - one.start) * 1000 for one in truth.incidents],
            marker={"color": _INCIDENT, "line": {"width": 0}},
            hovertext=[
                f"{escape(one.id)} ({escape(one.kind)}{', near miss' if one.near_miss else ''})<br>"
                f"{_time(one.start)} to {_time(one.end)}"
                for one in truth.incidents
            ],
            hoverinfo="text",
        )
    )


def _hover(span: Span, firings: Sequence[Firing]) -> str:
    ended = "the end" if span.end is None else _time(span.end)
    lines = [f"<b>{span.state.value}</b>{f' ({span.reason})' if span.reason else ''}: {_time(span.start)} to {ended}"]
    if span.state in FIRING:
        near = [firing for firing in firings if firing.fired_at <= span.start]
        if near:
            texts = near[-1].worst.annotations
            lines += [f"{name}: {escape(texts.get(name, ''))}" for name in FACTS]
    return "<br>".join(lines)


def _key(firing: Firing) -> tuple[tuple[str, str], ...]:
    """Return the labels under which the timeline keeps a firing's states."""
    added = {*labels_of_grafana(""), "rulename"}
    return tuple(sorted((name, value) for name, value in firing.first.labels.items() if name not in added))


def _series_name(rule: Rule, labels: Iterable[tuple[str, str]]) -> str:
    common = rule.all_labels()
    own = {name: value for name, value in labels if common.get(name) != value}
    parties = [own.pop(name) for name in (schema.SRC, schema.DST) if name in own]
    text = " ".join([" → ".join(parties), *own.values()]).strip()
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return f"{rule.id}: {shown}" if shown else rule.id


def _sweep_part(report: Report) -> list[str]:
    parts: list[str] = []
    for sweep in report.sweeps:
        counts = [len(run.firings) for run in sweep.runs]
        present = [setting.is_present for setting in sweep.settings]
        figure = go.Figure(
            go.Bar(
                x=[setting.text for setting in sweep.settings],
                y=counts,
                text=[str(count) for count in counts],
                textposition="outside",
                marker={"color": [palette.LOOK if one else palette.QUIET for one in present]},
                hoverinfo="x+y",
            )
        )
        figure.update_xaxes(type="category", title=sweep.name)
        figure.update_yaxes(title="alerts", rangemode="tozero")
        rows = [
            (
                f'<span class="chosen">{escape(setting.text)} (now)</span>'
                if setting.is_present
                else escape(setting.text),
                str(len(run.firings)),
                humanize_duration(sum(firing.seconds(report.stretch.end) for firing in run.firings)),
                escape(", ".join(dict.fromkeys(_about(firing) for firing in run.firings[:5]))),
            )
            for setting, run in zip(sweep.settings, sweep.runs, strict=True)
        ]
        parts += [
            f"<h2>How many alerts, by <code>{escape(sweep.name)}</code></h2>",
            _figure(figure, 260),
            _table((sweep.name, "alerts", "firing for", "the first of them"), rows, frozenset({1, 2})),
        ]
    return parts


def _about(firing: Firing) -> str:
    texts = firing.worst.annotations
    if SOURCE not in texts:
        return firing.first.title
    return f"{texts[SOURCE]} → {texts.get(DESTINATION, '')}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _stamp(seconds: float) -> str:
    return format_moment(seconds).removesuffix("Z")
