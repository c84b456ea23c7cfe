"""Everything that is generated from cluster.yaml: boards, rules, and the collector's configuration."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from app.errors import UserError
from cluster.model import Cluster, Secret
from dashboards import provision
from dashboards.registry import BOARDS
from ingest.collect import firewall
from ingest.collect.pmacct import collector_files
from rules.grafana import encode
from rules.registry import MODULES, rules_of
from rules.rule import Rule, RuleSet

COLLECTOR = "pmacct"
"""Folder of the collector's files below the provisioning folder."""

COLLECTOR_INSTALLED = Path("/etc/clusterflow/pmacct")
"""Where those files lie on the collector's machine: they name each other by this path."""

_WITH_SECRETS = (f"{provision.PREFIX}/datasources/clusterflow.yaml", encode.CONTACT_POINTS)
# Grafana takes $$ for a plain $.
_REFERENCE = re.compile(r"(?<!\$)(?:\$\$)*\$__(env|file)\{([^}]*)\}")


def artefacts(cluster: Cluster, grafana: str = provision.INSTALLED) -> dict[str, str]:
    """Return all generated files, path below the provisioning folder -> text; the same for the same cluster.

    Args:
        cluster: what they are generated from.
        grafana: folder in which Grafana will find its files.

    Raises:
        UserError: a file of the site's own is at fault, or a rule links to a panel that no board shows.
    """
    collector = collector_files(cluster, COLLECTOR_INSTALLED)
    if rules := firewall.nft_rules(cluster):
        collector[firewall.FILE] = rules
    return {
        **grafana_artefacts(cluster, grafana),
        **{f"{COLLECTOR}/{name}": text for name, text in collector.items()},
    }


def grafana_artefacts(cluster: Cluster, grafana: str = provision.INSTALLED) -> dict[str, str]:
    """Return what Grafana loads, as `artefacts` does."""
    rule_set = rules_of(cluster)
    boards = provision.artefacts(cluster, grafana, rule_set.skipped_lines())
    _refuse_dead_links(cluster, rule_set, boards)
    return {**boards, **encode.artefacts(cluster, rule_set)}


def _refuse_dead_links(cluster: Cluster, rule_set: RuleSet, files: Mapping[str, str]) -> None:
    pages = [json.loads(text) for path, text in files.items() if path.endswith(".json")]
    shown = {(page["uid"], panel["id"]) for page in pages for panel in page["panels"]}
    for rule in rule_set.rules:
        if (rule.panel.dashboard_uid, rule.panel.panel_id) not in shown:
            hint = "put the panel back, or let the rule's `panel` name another"
            own = next((path for path in cluster.rules if Path(path).stem == rule.id), None)
            file = own or f"{MODULES[rule.id].__name__.replace('.', '/')}.py"
            raise UserError(f"{file}: its alerts link to {_panel(rule)}, which is not there", hint)


def _panel(rule: Rule) -> str:
    uid, number = rule.panel.dashboard_uid, rule.panel.panel_id
    board = next((board for board in BOARDS.values() if board.uid == uid), None)
    name = board.panels[number - 1] if board and 0 < number <= len(board.panels) else number
    return f"panel {name} of the board {uid}"


def secrets_of_grafana(files: Mapping[str, str]) -> list[Secret]:
    """Return what Grafana must find where it runs, to load these files: each variable and file once, in their order."""
    texts = [text for path in _WITH_SECRETS for text in _texts(yaml.safe_load(files[path]))]
    found = [match for text in texts for match in _REFERENCE.findall(text)]
    return [Secret(**{kind: name}) for kind, name in dict.fromkeys(found)]


def _texts(content: object) -> Iterator[str]:
    """Return every text in a document."""
    if isinstance(content, dict):
        content = [*content.values()]
    if isinstance(content, list):
        for part in content:
            yield from _texts(part)
    elif isinstance(content, str):
        yield content
