"""The runbook as a board of Grafana: whoever can open an alert can open what to do about it, without another server.

A panel is a rule's section of docs/runbook.md; the alert's link shows that panel alone.
"""

import json
import re
from importlib.resources import files
from zlib import crc32

from cluster.model import Cluster
from dashboards.board import SCHEMA_VERSION, TAG
from dashboards.registry import RUNBOOK
from rules.common.texts import WHAT_TO_DO
from rules.rule import Rule, RuleSet

_INTRODUCTION = 1
_IDS, _FIRST_ID = 900_000, 100
_WIDTH = 24
_LETTERS_A_LINE, _PIXELS_A_LINE, _PIXELS_A_ROW = 170, 22, 38
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def address(cluster: Cluster, rule_id: str) -> str:
    """Return where a rule's section opens: in the site's own runbook if it has one, else on the board."""
    settings = cluster.grafana
    if settings.runbook_url is not None:
        return f"{settings.runbook_url}#{rule_id}"
    return f"{settings.url.rstrip('/')}/d/{RUNBOOK.uid}?viewPanel={panel_id(rule_id)}"


def panel_id(rule_id: str) -> int:
    """Return the id of a rule's panel: the same whatever other rules there are, as links in sent alerts hold it."""
    return _FIRST_ID + crc32(rule_id.encode()) % _IDS


def sections() -> dict[str, str]:
    """Return the runbook's sections by the ids of their rules, the introduction by an empty one."""
    text = files("rules").joinpath("runbook.md").read_text(encoding="utf-8")
    introduction, *others = re.split(r"^## ", text, flags=re.MULTILINE)
    split = (section.partition("\n") for section in others)
    return {"": introduction.partition("\n")[2].strip(), **{name.strip(): body.strip() for name, _, body in split}}


def board(cluster: Cluster, rule_set: RuleSet) -> str:
    """Return the board's JSON: the introduction, then a panel for each rule of the cluster."""
    known = sections()
    texts = [(_INTRODUCTION, RUNBOOK.title, known[""])]
    texts += [(panel_id(rule.id), rule.id, known.get(rule.id) or _of_own(rule)) for rule in rule_set.rules]
    panels, row = [], 0
    for number, title, text in texts:
        height = _height(text)
        place = {"h": height, "w": _WIDTH, "x": 0, "y": row}
        options = {"mode": "markdown", "content": _linked(text)}
        panels.append({"id": number, "type": "text", "title": title, "gridPos": place, "options": options})
        row += height
    document = {
        "uid": RUNBOOK.uid,
        "title": RUNBOOK.title,
        "description": f"{RUNBOOK.question} ({cluster.name})",
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "timepicker": {"hidden": True},
        "panels": panels,
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _of_own(rule: Rule) -> str:
    """Return a section for a rule of the site's own."""
    what_to_do = dict(rule.annotations).get(WHAT_TO_DO, "")
    # With templates in it, it makes sense in a message only.
    said = f"**Do:** {what_to_do}\n\n" if what_to_do and "{{" not in what_to_do else ""
    return (
        f"**{rule.title}** · {rule.severity.value}\n\n{said}A rule of this site's own: cluster.yaml names its file "
        "under `rules`."
    )


def _linked(text: str) -> str:
    """Return Markdown whose links lead to panels of this board; those to other pages of docs/ become words."""

    def link(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if target.startswith("#"):
            # Grafana's sanitiser takes a link that begins with a dot or a scheme.
            return f"[{words}](./{RUNBOOK.uid}?viewPanel={panel_id(target[1:])})"
        return match[0] if "://" in target else f"{words} (docs/{target.partition('#')[0]})"

    return _LINK.sub(link, text)


def _height(text: str) -> int:
    """Return about how many rows of the grid a text takes, with its title."""
    lines = sum(1 + len(line) // _LETTERS_A_LINE for line in text.splitlines())
    return 2 + lines * _PIXELS_A_LINE // _PIXELS_A_ROW
