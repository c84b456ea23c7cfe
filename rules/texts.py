"""Words that several rules use in their annotations: Go templates over ``$labels`` and ``$values``."""

import re
from collections.abc import Iterable

from cluster import schema
from cluster.model import Cluster

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


def value(name: str) -> str:
    """Return how a template reads a measure's number."""
    return f"$values.{name}.Value"


def bytes_of(name: str) -> str:
    """Return a measure as decimal bytes: ``41.2GB``. Grafana's `humanize` counts in thousands, as cluster.yaml does."""
    return f"{{{{ humanize {value(name)} }}}}B"


def duration_of(name: str) -> str:
    """Return a measure of seconds in words: ``2m 5s``."""
    return f"{{{{ humanizeDuration {value(name)} }}}}"


def moment_of(name: str) -> str:
    """Return a measure of epoch seconds as a time: ``2026-05-01 12:00:00 +0000 UTC``."""
    return f"{{{{ humanizeTimestamp {value(name)} }}}}"


def share_of(name: str) -> str:
    """Return a ratio as a percentage: ``12.35%``."""
    return f"{{{{ humanizePercentage {value(name)} }}}}"


def whole(name: str) -> str:
    """Return a measure without decimals: ``128``."""
    return f'{{{{ printf "%.0f" {value(name)} }}}}'


def group_title(cluster: Cluster, tag: str, groups: Iterable[str]) -> str:
    """Return a group's name for people, chosen by a label where there may be several groups."""
    ids = tuple(groups)
    if len(ids) == 1:
        return plain(cluster.title(ids[0]))
    chain = "".join(
        f'{{{{ {"if" if position == 0 else "else if"} eq $labels.{tag} "{group}" }}}}{plain(cluster.title(group))}'
        for position, group in enumerate(ids)
    )
    return f"{chain}{{{{ else }}}}{{{{ $labels.{tag} }}}}{{{{ end }}}}"


def plain(text: str) -> str:
    """Return a user's text so that neither Go's templates nor Grafana's provisioning expand anything in it."""
    # One pass: the braces of the replacements must not be replaced again.
    return re.sub(r"[{$]", lambda match: f'{{{{ "{match[0]}" }}}}', text)
