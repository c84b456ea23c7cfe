"""Our rendering of annotations against Go's, word by word; and what the subset refuses."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster.load import load_cluster
from rules.common.texts import plain
from rules.grafana.go_numbers import go_shortest, humanize, humanize1024, humanize_duration, humanize_percentage
from rules.grafana.templates import Context, Number, TemplateError, parse, render
from rules.registry import rules_of

FOLDER = Path(__file__).parent
GOLDENS: dict[str, Any] = yaml.safe_load((FOLDER / "template_goldens.yaml").read_text(encoding="utf-8"))
CONTEXT = Context(
    GOLDENS["labels"],
    {letter: Number(number, GOLDENS["labels"]) for letter, number in GOLDENS["values"].items()},
    "text",
)
RULES = rules_of(load_cluster(FOLDER / "cluster.yaml")).rules


@pytest.mark.parametrize("case", GOLDENS["cases"], ids=lambda case: case["template"][:60])
def test_same_as_go(case: dict[str, Any]) -> None:
    if case.get("fails"):
        with pytest.raises(TemplateError):
            render(case["template"], CONTEXT)
    else:
        assert render(case["template"], CONTEXT) == case["text"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ range $labels }}x{{ end }}",
        '{{ template "x" . }}',
        "{{ with $values.B }}{{ .Nothing }}{{ end }}",
        "{{ (index $values `B`) .Value }}",
        '{{ define "x" }}{{ end }}',
        "{{ $x := 1 }}",
        "{{ .Nothing }}",
        '{{ printf "%5.2f" 1.5 }}',
        "{{ humanize toUpper }}",
        "{{ if true }}{{ else }}{{ else }}{{ end }}",
        "{{ $labels.src",
    ],
)
def test_what_the_subset_lacks_is_refused(template: str) -> None:
    """Never wrong text: what we cannot render as Go does is an error."""
    with pytest.raises(TemplateError):
        render(template, CONTEXT)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_finite_number_is_named(value: float) -> None:
    name = "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    assert {humanize(value), humanize1024(value), humanize_duration(value), go_shortest(value)} == {name}
    assert humanize_percentage(value) == f"{name}%"
    assert str(Number(value)) == name


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_shortest_digits_read_back(value: float) -> None:
    assert float(go_shortest(value)) == value


@given(st.text(alphabet='${}"` ab%.\\', max_size=20).filter(lambda text: "\n" not in text))
def test_a_users_text_comes_out_as_it_went_in(text: str) -> None:
    """A title in cluster.yaml can neither start an action nor name an environment variable."""
    template = plain(text)
    assert render(template, CONTEXT) == text
    assert "${" not in template


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_rules_texts_are_in_the_subset(rule: Any) -> None:
    for _, text in rule.annotations:
        assert parse(rule.template(text))
