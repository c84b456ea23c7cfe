"""What the two rules about low and slow transfers share: whom they watch, the ledger's numbers, words for a volume.

One transfer is told once. What `exfil_volume` has told of within minutes is not in the numbers that these rules compare
(`slow_24h`, `slow_7d`); and what `low_and_slow_24h` has told of within a week, `low_and_slow_7d` does not tell again.
"""

from analysis.detectors.egress.ledger import borders
from cluster.model import Cluster, Role
from rules.common import texts, verdicts
from rules.common.visibility import VisiblePairs, visible_pairs
from rules.rule import Measure, NoRuleError
from store import schema
from store.influxql import Condition, Select
from store.schema import Field

LABELS = schema.LEDGER.tags
"""Every source and outside destination is an alert of its own, whatever protocols they use."""

_SINCE = 900
"""Three rows of the ledger: one may be late."""

ROLES = (Role.MODEL_STORAGE, Role.STORAGE, Role.TRAINING)

_FIELDS: dict[str, Field] = {
    "hour": schema.BYTES_1H,
    "day": schema.BYTES_24H,
    "week": schema.BYTES_7D,
    "month": schema.BYTES_30D,
    "hours": schema.ACTIVE_HOURS,
    "days": schema.ACTIVE_DAYS,
}
"""Measures of both rules, for their texts; that of a rule's own time is `bytes`."""


def watched(cluster: Cluster, rule_id: str) -> VisiblePairs:
    """Return the pairs that a rule looks at: where weights and checkpoints lie, and every sensitive group."""
    groups = [group for group in cluster.inside_groups() if group.role in ROLES or group.sensitive]
    if not groups:
        raise NoRuleError(rule_id, "no group holds models, checkpoints or training, and none is sensitive")
    return visible_pairs(cluster, rule_id, groups, cluster.outside_ids())


def measures(
    seen: VisiblePairs, first: Field, *conditions: Condition, size: Field, share: Field
) -> tuple[Measure, ...]:
    """Return the ledger's numbers of the pairs that the conditions let pass, `first` the one that is compared.

    Args:
        seen: pairs to look at.
        first: compared with the threshold; ``$values.slow``.
        conditions: on the newest row of a pair.
        size: what was sent in the rule's own time: ``$values.bytes``, as every rule calls what it tells of.
        share: of an artefact; ``$values.share``.
    """
    stored = Select(schema.LEDGER, schema.LEDGER.kept).where(seen.condition()).by(*LABELS)
    fields = {schema.BYTES.name if field is size else name: field for name, field in _FIELDS.items()}
    return verdicts.measures(stored, {"slow": first, **fields, "share": share}, _SINCE, "a pair", *conditions)


def artefact(cluster: Cluster, volume: str) -> str:
    """Return "0.93 of llama-70b" for a volume and its share (measure ``share``); empty where none is listed.

    Args:
        cluster: its artefacts; the nearest one becomes the next where the ledger draws the border.
        volume: measure whose artefact is named.
    """
    artefacts = cluster.artefacts
    if not artefacts:
        return ""
    chain = "".join(
        f"{{{{ {'if' if position == 0 else 'else if'} le .Value {border}.0 }}}}{texts.plain(one.name)}"
        for position, (one, border) in enumerate(zip(artefacts, borders(artefacts), strict=False))
    )
    last = texts.plain(artefacts[-1].name)
    name = texts.number(volume, f"{chain}{{{{ else }}}}{last}{{{{ end }}}}", "an artefact") if chain else last
    share = texts.number("share", '{{ printf "%.2f" .Value }}', "part")
    return f"{share} of {name}"
