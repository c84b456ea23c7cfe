"""An incident as one HTML file: no script, nothing loaded, light and dark, printable."""

import re
from collections.abc import Iterator
from html import escape
from urllib.parse import urlencode

from markdown_it import MarkdownIt

from app.units import format_duration
from cluster.model import Cluster
from reporting.incident.incident import Incident
from reporting.incident.line_chart import STYLE as CHART_STYLE
from reporting.incident.line_chart import line_chart
from reporting.page import document, section_parts
from reporting.words import Wording, plain
from rules.rule import Severity

DARK = """
:root { --paper: #ffffff; color-scheme: light dark; }
body { background: var(--paper); }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181d; --ink: #e3e6ec; --dim: #9aa3b2; --line: #333945; --quiet: #6d9be0; --look: #ffb357;
    --act: #ff7a70; --bar: #24405f; --link: #8ab4f8; }
}
@media print { :root { --paper: #ffffff; --ink: #1f2430; --dim: #5a6272; --line: #dfe2e8; --act: #b3261e;
  --look: #b45f06; --bar: #dce8f8; --quiet: #7ea6e0; } }
"""
_OWN = """
h1 { margin-top: .2rem; } p.summary { font-size: 1.05rem; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
.badge { display: inline-block; border-radius: 4px; padding: .1rem .5rem; font-size: 12px; font-weight: 600;
  color: #fff; background: #5a6272; margin-right: .35rem; }
.badge.critical { background: #b3261e; } .badge.warning { background: #b45f06; } .badge.firing { background: #b3261e; }
dl.head { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; border: 1px solid var(--line);
  border-radius: 6px; padding: .8rem 1rem; }
dl.head dt, dl.head dd { margin: 0; } dl.head dd { overflow-wrap: anywhere; font-weight: 500; }
blockquote { margin: .6rem 0; padding: .1rem 1rem; border-left: 3px solid var(--quiet); }
code, pre { font: 12.5px ui-monospace, monospace; } pre { overflow-x: auto; border: 1px solid var(--line);
  border-radius: 4px; padding: .5rem .7rem; }
@media (max-width: 700px) { dl.head { grid-template-columns: 1fr; } dl.head dt { margin-top: .4rem; } }
"""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def html(incident: Incident, cluster: Cluster) -> str:
    """Return the whole document."""
    words = Wording.of(cluster)
    body = "".join(_parts(incident, cluster, words))
    return document(f"{plain(incident.alert.title)} · {cluster.name}", body, DARK, _OWN, CHART_STYLE)


def _parts(incident: Incident, cluster: Cluster, words: Wording) -> Iterator[str]:
    alert = incident.alert
    severity = alert.severity if alert.severity in set(Severity) else ""
    state = "firing" if alert.ended is None else "resolved"
    yield f'<p class="note">{escape(cluster.name)} · rule {escape(plain(alert.rule))} · incident {escape(alert.id)}</p>'
    yield f"<h1>{escape(plain(alert.title))}</h1>"
    badges = (severity, alert.severity), (state, state)
    yield f"<p>{''.join(_badge(name, text) for name, text in badges)}</p>"
    yield f'<p class="summary">{escape(alert.summary)}</p>'
    pairs = (f"<dt>{escape(title)}</dt><dd>{escape(plain(text))}</dd>" for title, text in incident.facts if text)
    yield f'<dl class="head">{"".join(pairs)}</dl>'
    if pages := cluster.delivery.flow_pages():
        link = f"{pages}?{urlencode({'around': alert.id})}"
        yield f'<p><a href="{escape(link)}">Every conversation of its source, half an hour around it</a></p>'
    yield from _evidence(incident, words)
    yield from _to_do(incident)
    for section in incident.sections:
        yield from section_parts(section, words)
    yield (
        f'<section><p class="note">Times are in {escape(words.zone.key)}. Bytes are IP bytes, scaled by sampling, each '
        f"counted once; kB, MB, GB are decimal. Made {escape(words.moment(incident.made_at))} by clusterflow incident "
        f"from what the store had then.</p></section>"
    )


def _badge(name: str, text: str) -> str:
    return f'<span class="badge {name}">{escape(text)}</span>'


def _evidence(incident: Incident, words: Wording) -> Iterator[str]:
    found = incident.evidence
    yield '<section id="evidence"><h2>What the rule saw</h2>'
    if found is None or not found.is_seen:
        why = (
            "The rule is no longer generated from cluster.yaml."
            if incident.rule is None
            else "Its points are gone, or the alert is from before its labels were kept."
        )
        yield f'<p class="note">No chart: {why}</p></section>'
        return
    marks = [(incident.alert.began, "fired")]
    if incident.alert.ended is not None:
        marks.append((incident.alert.ended, "resolved"))
    chart = line_chart(found.chart(marks, words.zone))
    yield f"<p>{escape(found.meaning)} Each value looks back {format_duration(found.seconds)}.</p>"
    yield f"<figure>{chart}</figure>"
    name = escape(found.threshold.name)
    note = (
        f"The limit follows from thresholds.{name}, as it is now."
        if found.threshold.value
        else f"All of this is over a limit: thresholds.{name}, or another one under Threshold, below."
    )
    yield f'<p class="note">{note}</p></section>'


def _to_do(incident: Incident) -> Iterator[str]:
    yield '<section id="what-to-do"><h2>What to do</h2>'
    if incident.alert.what_to_do:
        yield f"<p><b>{escape(incident.alert.what_to_do)}</b></p>"
    if incident.what_to_do:
        yield f"<blockquote>{_MARKDOWN.render(_unlinked(incident.what_to_do))}</blockquote>"
    elif not incident.alert.what_to_do:
        yield '<p class="note">The runbook has no section for this rule.</p>'
    yield "</section>"


def _unlinked(text: str) -> str:
    """Return Markdown without links that lead nowhere from here: those inside of the documentation become words."""
    return _LINK.sub(lambda match: match[0] if "://" in match[2] else match[1], text)
