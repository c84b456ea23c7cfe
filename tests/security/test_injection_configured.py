"""Names in cluster.yaml and those that hooks post: refused, or text in whatever is generated from them."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile import HOSTILE, shown

from analysis.jobs.register import Register
from analysis.jobs.sources.http import Desk, RefusedError
from app.errors import ConfigError
from app.log import Log
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster
from dashboards.provision import _datasource
from operations.generated import artefacts
from rules.common.texts import plain
from rules.grafana.templates import Context, parse, render
from rules.registry import rules_of

ROOT = Path(__file__).resolve().parents[2]
DEMO: dict[str, Any] = {
    "cluster": "lab",
    "groups": {
        "training": {"role": "training", "prefixes": ["10.20.0.0/16"]},
        "models": {"role": "model_storage", "prefixes": ["10.40.0.0/24"], "sensitive": True},
    },
    "nodes": {"gpu-01": {"group": "training", "addresses": ["10.20.0.1"]}},
    "exporters": {"leaf-1": {"address": "192.0.2.9", "protocol": "netflow"}},
    "artefacts": {"llama": "141 GB"},
    "services": {},
}

each_text = pytest.mark.parametrize("text", HOSTILE, ids=shown)


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "cluster": lambda text: {"cluster": text},
    "title": lambda text: {"groups": {**DEMO["groups"], "training": {**DEMO["groups"]["training"], "title": text}}},
    "group": lambda text: {"groups": {**DEMO["groups"], text: {"role": "custom"}}},
    "node": lambda text: {"nodes": {**DEMO["nodes"], text: {"group": "training", "addresses": ["10.20.9.9"]}}},
    "exporter": lambda text: {"exporters": {**DEMO["exporters"], text: {"address": "192.0.2.1", "protocol": "sflow"}}},
    "interface": lambda text: {
        "exporters": {
            **DEMO["exporters"],
            "leaf-2": {
                "address": "192.0.2.1",
                "protocol": "sflow",
                "interfaces": {"77": {"name": text, "plane": "compute"}},
            },
        }
    },
    "service": lambda text: {"services": {**DEMO["services"], text: {"ports": [9999]}}},
    "artefact": lambda text: {"artefacts": {**DEMO["artefacts"], text: "123 GB"}},
    "job id": lambda text: {"jobs": [{"id": text, "nodes": ["gpu-01"], "start": "2026-03-01T08:00:00Z"}]},
    "job class": lambda text: {"job_classes": {text: {"parameters": "70B"}}},
    "contact point": lambda text: {"notify": {text: {"type": "email", "addresses": ["a@example.org"]}}},
    "shard": lambda text: {"bridge": {"shard": text}},
    "database": lambda text: {"store": {"database": text}},
    "user": lambda text: {"store": {"username": text, "password": {"env": "X"}}},
}
"""Places of cluster.yaml for a name, and the keys that put one there."""

STRICT = (
    "cluster", "group", "node", "exporter", "interface", "service", "artefact", "job id", "job class", "contact point",
    "shard", "database",
)  # fmt: skip
"""Places whose names have an alphabet: what is not of it is refused."""
HARMLESS = re.compile(r"[A-Za-z0-9._:-]{1,63}")


def loaded(place: str, text: str) -> Cluster | None:
    lines: list[str] = []
    cluster = None
    try:
        cluster = parse_cluster(json.dumps(DEMO | PLACES[place](text)))
    except ConfigError as error:
        lines = error.lines()
    for line in lines:
        assert line.isprintable(), "a terminal would obey it"
        assert len(line) < 1000
    return cluster


@pytest.mark.parametrize("place", STRICT)
@each_text
def test_a_name_has_an_alphabet(place: str, text: str) -> None:
    if loaded(place, text) is not None:
        assert HARMLESS.fullmatch(text) or place == "interface"


def strings(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def queries(files: dict[str, str]) -> set[str]:
    """Return every InfluxQL of boards and rules."""
    found = set()
    for name, text in files.items():
        if name.endswith((".json", ".yaml")):
            document = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
            found |= {one for one in strings(document) if re.match(r"\s*(SELECT|SHOW)\b", one)}
    return found


EXPANDED = [text for text in HOSTILE if re.search(r"[{$\[\"',;]", text) and len(text) <= 60]
"""What Go's templates, Grafana's variables and provisioning, JSON or YAML might take for their own."""


def titled(titles: list[str]) -> Cluster:
    """Return a cluster with a group for each title, and one of them for the training nodes, which most boards name."""
    groups = {f"group_{number}": {"role": "custom", "title": title} for number, title in enumerate(titles)}
    training = {**DEMO["groups"]["training"], "title": titles[0]}
    return parse_cluster(json.dumps(DEMO | {"groups": {**DEMO["groups"], "training": training, **groups}}))


@pytest.mark.thorough
def test_a_title_stays_text_in_everything_that_is_generated() -> None:
    titles = [text for text in EXPANDED if loaded("title", text) is not None]
    assert len(titles) > 10
    files = artefacts(titled(titles))
    harmless = artefacts(titled([f"Title {number}" for number in range(len(titles))]))
    assert queries(files) == queries(harmless), "no free text is ever part of a query"
    for name, content in files.items():
        if name.endswith(".yaml"):
            assert yaml.safe_load(content) is not None, name


@each_text
def test_a_user_stays_text_in_the_data_source(text: str) -> None:
    cluster = loaded("user", text)
    if cluster is None:
        return
    (source,) = yaml.safe_load(_datasource(cluster))["datasources"]
    # Grafana expands $NAME, ${NAME} and $__file{...} in these files, unless the sign stands twice.
    assert "$" not in source["user"].replace("$$", "")
    assert source["user"].replace("$$", "$") == text.strip()


@each_text
def test_a_title_is_rendered_as_it_is_in_every_annotation(text: str) -> None:
    cluster = loaded("title", text)
    if cluster is None:
        return
    title = text.strip()
    seen = 0
    for rule in rules_of(cluster).rules:
        for _, annotation in rule.annotations:
            parse(annotation)
            if plain(title) in annotation:
                seen += 1
    assert seen, "some annotation names the group"
    assert "$" not in plain(title).replace('"$"', "")


@each_text
def test_a_text_made_plain_renders_as_itself(text: str) -> None:
    assert render(plain(text), Context({}, {})) == text


@each_text
@pytest.mark.parametrize("key", ["id", "class"])
def test_a_hook_can_post_names_of_the_alphabet_only(key: str, text: str, tmp_path: Path) -> None:
    now = datetime(2026, 3, 1, 8, tzinfo=UTC).timestamp()
    body = {"id": "1", "class": "c", "nodes": ["gpu-01"]} | {key: text}
    with Register.open(tmp_path) as register:
        desk = Desk("http", register, load_cluster(ROOT / "cluster.yaml").site.time_zone, longest=1e6, keep=1e6)
        names, refusal = [], ""
        try:
            job, _ = desk.begin(body, now)
            names = [job.id, job.job_class]
        except RefusedError as error:
            refusal = "".join(error.lines)
        assert bool(names) != bool(refusal)
        assert refusal.isprintable()
        assert all(HARMLESS.fullmatch(name) for name in names)


@each_text
@pytest.mark.parametrize("as_json", [True, False])
def test_a_log_line_is_one_printable_line(text: str, capsys: pytest.CaptureFixture[str], *, as_json: bool) -> None:
    """Names that a source told, such as of nodes that are not ours, are told in the log."""
    Log(as_json=as_json).line("event", name=text)
    told = capsys.readouterr().err
    assert told.removesuffix("\n").isprintable()
    if as_json:
        assert json.loads(told)["name"] == text


def test_the_demo_is_where_the_places_are() -> None:
    """The places above are those of cluster.yaml: a harmless text is taken in each of them."""
    for place in (*STRICT, "title", "user"):
        assert loaded(place, "harmless") is not None, place
