"""Words that several rules use in their annotations: Go templates over ``$labels`` and ``$values``."""

import re
from collections.abc import Iterable

from cluster.model import Cluster
from store import schema

SUMMARY = "summary"
SOURCE = "source"
DESTINATION = "destination"
PROTOCOL = "protocol"
BYTES = "bytes"
DURATION = "duration"
WHAT_TO_DO = "what_to_do"
NODE = "node"
JOB = "job"
COST = "cost"

FACTS = (SOURCE, DESTINATION, PROTOCOL, BYTES, DURATION)
"""The five facts that every alert names."""

REQUIRED = (SUMMARY, *FACTS, WHAT_TO_DO)
"""Annotations that every rule has."""

PLACE = "".join(
    f"{{{{ if $labels.{label} }}}}{{{{ $labels.{label} }}}}, {{{{ end }}}}"
    for label in (schema.NETWORK, schema.COUNTRY)
)
"""Network and country of an outside address as far as they are known: ``AS64500 ExampleHost, NL, ``."""

LISTED = f"{{{{ if $labels.{schema.FEED} }}}}listed by {{{{ $labels.{schema.FEED} }}}}, {{{{ end }}}}"
"""The threat feeds that list an outside address, if any does: ``listed by botnets, ``."""

APPLICATION = f"{{{{ if $labels.{schema.APPLICATION} }}}}{{{{ $labels.{schema.APPLICATION} }}}}, {{{{ end }}}}"
"""What an outside address is, where a list says so: ``model hub, ``."""

Annotations = tuple[tuple[str, str], ...]


def annotations(
    *,
    summary: str,
    source: str,
    destination: str,
    protocol: str,
    size: str,
    duration: str,
    what_to_do: str,
    more: Annotations = (),
) -> Annotations:
    """Return a rule's annotations in the order of the message; `summary` is one sentence for 3 am."""
    facts = zip(FACTS, (source, destination, protocol, size, duration), strict=True)
    return ((SUMMARY, summary), *facts, *more, (WHAT_TO_DO, what_to_do))


UNKNOWN = "unknown"
"""What stands in a text for a number that Grafana could not join."""


def number(name: str, text: str, otherwise: str = UNKNOWN) -> str:
    """Return a template that says `text`, in which ``.Value`` is a measure's number, or `otherwise` where it has none.

    Grafana fails on ``$values.X.Value`` where the number is missing: the annotation then holds its own source text, and
    each evaluation writes an error to the log.
    """
    return f"{{{{ with $values.{name} }}}}{text}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def bytes_of(name: str) -> str:
    """Return a measure as decimal bytes: ``41.2GB``. Grafana's `humanize` counts in thousands, as cluster.yaml does."""
    return number(name, "{{ humanize .Value }}B")


def bit_rate_of(name: str) -> str:
    """Return a measure of bit/s in words: ``41.2Gbit/s``."""
    return number(name, "{{ humanize .Value }}bit/s")


def duration_of(name: str) -> str:
    """Return a measure of seconds in words: ``2m 5s``."""
    return number(name, "{{ humanizeDuration .Value }}")


def moment_of(name: str) -> str:
    """Return a measure of epoch seconds as a time: ``2026-05-01 12:00:00 UTC``."""
    # Go says the zone twice. Rules have no function for the site's.
    return number(name, '{{ reReplaceAll " [+]0000" "" (humanizeTimestamp .Value) }}')


def share_of(name: str) -> str:
    """Return a ratio as a percentage: ``12.35%``."""
    return number(name, "{{ humanizePercentage .Value }}")


def whole(name: str) -> str:
    """Return a measure without decimals: ``128``."""
    return number(name, '{{ printf "%.0f" .Value }}')


def many(name: str, word: str) -> str:
    """Return how many there are, in words: ``1 node``, ``3 nodes``."""
    return f"{whole(name)} {word}{number(name, '{{ if ne .Value 1.0 }}s{{ end }}', 's')}"


def named(tag: str, many: str = "addresses that no inventory knows") -> str:
    """Return an end's name by its label, or words where it stands for many.

    Of what is beyond the largest of a window, only ends that an inventory lists keep their names.
    """
    return f'{{{{ if eq $labels.{tag} "{schema.OTHER}" }}}}{many}{{{{ else }}}}{{{{ $labels.{tag} }}}}{{{{ end }}}}'


def one_or(tag: str, measure: str, many: str) -> str:
    """Return an end's name by its label, or how many there are by a measure."""
    return named(tag, f"{whole(measure)} {many}")


def group_title(cluster: Cluster, tag: str, groups: Iterable[str]) -> str:
    """Return a group's name for people, chosen by a label where there may be several groups."""
    ids = tuple(groups)
    if len(ids) == 1:
        return plain(cluster.title(ids[0]))
    titles = ((group, plain(cluster.title(group))) for group in ids)
    return chosen(tag, titles, f"{{{{ $labels.{tag} }}}}")


def chosen(tag: str, words: Iterable[tuple[str, str]], otherwise: str = "") -> str:
    """Return the words that stand beside a label's value, or others where it has none of these."""
    chain = "".join(
        f'{{{{ {"else if" if place else "if"} eq $labels.{tag} "{value}" }}}}{text}'
        for place, (value, text) in enumerate(words)
    )
    return f"{chain}{{{{ else }}}}{otherwise}{{{{ end }}}}" if otherwise else f"{chain}{{{{ end }}}}"


def plain(text: str) -> str:
    """Return a user's text so that neither Go's templates nor Grafana's provisioning expand anything in it."""
    # One pass: the braces of the replacements must not be replaced again.
    return re.sub(r"[{$]", lambda match: f'{{{{ "{match[0]}" }}}}', text)
