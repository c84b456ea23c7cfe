"""What is declared in one place and made in another is in both: else the first user finds out."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.errors import UserError
from cluster.model import ApplicationFormat, FeedFormat
from cluster.sections.delivery import DESTINATIONS
from cluster.sections.inventory_sources import INVENTORY_SOURCES
from cluster.sections.job_sources import JOB_SOURCES
from delivery.deliver import TRANSPORTS
from enrichment.addresses import application_files
from enrichment.feeds import feed_files
from rules import registry

REPOSITORY = Path(__file__).resolve().parents[2]


def _modules(folder: str) -> set[str]:
    return {path.stem for path in (REPOSITORY / folder).glob("*.py")}


@pytest.mark.parametrize(
    ("declared", "made", "where"),
    [
        (DESTINATIONS, {one.kind for one in TRANSPORTS}, "delivery/deliver.py: TRANSPORTS"),
        (JOB_SOURCES, _modules("analysis/jobs/sources"), "analysis/jobs/sources"),
        (INVENTORY_SOURCES, _modules("enrichment/inventory"), "enrichment/inventory"),
        (
            ApplicationFormat,
            {*application_files._READERS, ApplicationFormat.PREFIXES},
            "enrichment/addresses/application_files.py: _READERS",
        ),
        (FeedFormat, set(feed_files._PLACES), "enrichment/feeds/feed_files.py: _PLACES"),
    ],
    ids=["destinations", "job sources", "inventory sources", "applications", "feeds"],
)
def test_what_cluster_yaml_may_name_is_made(declared: Iterable[str], made: set[str], where: str) -> None:
    missing = sorted(set(declared) - made)
    assert not missing, f"{where}: none for {', '.join(missing)}"


def test_every_study_is_run() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "analysis/detectors").rglob("*.py"))
    studies = set(re.findall(r"^class (\w+Study)\b(?!\(Protocol)", code, re.MULTILINE))
    idle = sorted(name for name in studies if not re.search(rf"(?<!class )\b{name}\(", code))
    assert len(studies) > 20
    assert not idle, f"analysis/detectors/studies.py: no line makes {', '.join(idle)}"


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (registry.IDS[1:], rf"docs/runbook\.md: no section {registry.IDS[0]}$"),
        ((*registry.IDS, "nothing"), "rules/alerts: no rule nothing$"),
    ],
    ids=["section", "rule"],
)
def test_a_rule_has_its_section(ids: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "sections", lambda: dict.fromkeys(ids))
    with pytest.raises(UserError, match=said):
        registry._modules()
