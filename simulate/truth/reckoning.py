"""The reckoning at the end of a run: what the store holds against what was sent, to the byte."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from simulate.incidents.incident import EGRESS
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, total
from store.schema import Measurement

Sums = Counter[tuple[str, ...]]

_UNITS = (schema.BYTES.name, schema.PACKETS.name, schema.FLOWS.name)
_REFUSED = (schema.FLOWS.name, schema.PACKETS.name)

_PARTS = {
    "egress": ((schema.SRC_GROUP, schema.DST_GROUP), _UNITS),
    "rails": ((schema.NODE, schema.RAIL), (schema.TX_BYTES.name,)),
    "storage": ((schema.ENDPOINT,), (schema.READ_BYTES.name, schema.WRITE_BYTES.name)),
    "interfaces": (
        (schema.EXPORTER, schema.INTERFACE),
        tuple(
            field.name
            for field in (schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)
        ),
    ),
}
"""Sections of the truth, with what names a row of them and what is counted there."""

_MEASUREMENTS = {
    "egress": schema.EGRESS,
    "rails": schema.RAIL_TRAFFIC,
    "storage": schema.STORAGE_IO,
    "interfaces": schema.INTERFACE_TRAFFIC,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One total that is not what was sent."""

    what: str
    unit: str
    sent: int
    stored: int

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.what}: sent {self.sent:,} {self.unit}, stored {self.stored:,} ({self.stored - self.sent:+,})"


@dataclass(frozen=True, slots=True)
class Reckoning:
    """All totals compared.

    Attributes:
        checked: how many totals were compared.
        sent_bytes, stored_bytes: over all group pairs.
        differences: those that do not agree, in the order of the comparison.
    """

    checked: int
    sent_bytes: int
    stored_bytes: int
    differences: tuple[Difference, ...]


def reckon(store: Store, truth: dict[str, Any], shard: str | None) -> Reckoning:
    """Compare a ground truth (`GroundTruth.document`) with the points of one shard, or of all (None), as written.

    Compared are bytes, packets and flow records of each group pair, once more of those that lead outside, bytes and
    packets of each node in both directions, bytes of each rail, storage endpoint and interface in both directions, each
    staged transfer, the bytes that were suppressed because two exporters saw them, and what a cloud refused.
    """
    sent, stored = _sent(truth), _stored(store, shard)
    transfers = _transfers(store, truth, shard)
    sent.update({key: value for key, (value, _) in transfers.items()})
    stored.update({key: value for key, (_, value) in transfers.items()})
    # What is less than nothing differs, too.
    keys = sorted(key for key in {*sent, *stored} if sent[key] or stored[key])
    differences = tuple(
        Difference(" ".join(key[:-1]), key[-1], sent[key], stored[key]) for key in keys if sent[key] != stored[key]
    )
    pair_bytes = [key for key in keys if key[0] == "groups" and key[-1] == schema.BYTES.name]
    return Reckoning(
        checked=len(keys),
        sent_bytes=sum(sent[key] for key in pair_bytes),
        stored_bytes=sum(stored[key] for key in pair_bytes),
        differences=differences,
    )


def _sent(truth: dict[str, Any]) -> Sums:
    found: Sums = Counter()
    for pair in truth["group_pairs"]:
        for unit in _UNITS:
            found["groups", f"{pair['src_group']} -> {pair['dst_group']}", unit] += pair[unit]
    for node in truth["nodes"]:
        for direction in ("tx", "rx"):
            for unit in _UNITS[:2]:
                found["node", node["node"], direction, unit] += node[f"{direction}_{unit}"]
    for kind, (tags, fields) in _PARTS.items():
        for part in truth[kind]:
            name = " ".join(str(part[tag]) for tag in tags)
            for unit in fields:
                found[kind, name, unit] += part[unit]
    found["suppressed", schema.BYTES.name] += truth["totals"]["suppressed_bytes"]
    for unit in _REFUSED:
        found["refused", unit] += truth["totals"][f"refused_{unit}"]
    return found


def _stored(store: Store, shard: str | None) -> Sums:
    found: Sums = Counter()
    for tags, row in _sums(store, schema.TRAFFIC, (schema.SRC_GROUP, schema.DST_GROUP), shard):
        for unit in _UNITS:
            found["groups", f"{tags[schema.SRC_GROUP]} -> {tags[schema.DST_GROUP]}", unit] += row[unit]
    for tags, row in _sums(store, schema.NODE_TRAFFIC, (schema.NODE,), shard):
        for direction in ("tx", "rx"):
            for unit in _UNITS[:2]:
                found["node", tags[schema.NODE], direction, unit] += row[f"{direction}_{unit}"]
    for kind, measurement in _MEASUREMENTS.items():
        names, fields = _PARTS[kind]
        for tags, row in _sums(store, measurement, names, shard):
            for unit in fields:
                found[kind, " ".join(tags[name] for name in names), unit] += row[unit]
    found.update(_uncounted(store, shard))
    return found


def _uncounted(store: Store, shard: str | None) -> Sums:
    """Return what is stored and no traffic: it counts at another exporter, or a cloud refused it."""
    found: Sums = Counter()
    for _, row in _sums(store, schema.EXPORTER_STATUS, (), shard):
        found["suppressed", schema.BYTES.name] += row[schema.EXPORTER_SUPPRESSED.name]
    for _, row in _sums(store, schema.DENIED, (), shard):
        for unit in _REFUSED:
            found["refused", unit] += row[unit]
    return found


def _transfers(store: Store, truth: dict[str, Any], shard: str | None) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return sent and stored bytes of each pair of parties between which something was staged."""
    stored: Sums = Counter()
    for tags, row in _sums(store, schema.EGRESS, (schema.SRC, schema.DST), shard):
        stored[tags[schema.SRC], tags[schema.DST]] += row[schema.BYTES.name]
    staged = {
        (incident["src_address"], incident["dst"]): incident["src"]
        for incident in truth["incidents"]
        if incident["sent"] and incident["kind"] in EGRESS
    }
    sent: Sums = Counter()
    for talk in truth["conversations"]:
        # Ordinary traffic between the same parties counts as well.
        node = staged.get((talk["src"], talk["dst"]))
        if node is not None:
            sent[node, talk["dst"]] += talk["bytes"]
    return {
        ("transfer", f"{src} -> {dst}", schema.BYTES.name): (volume, stored[src, dst])
        for (src, dst), volume in sent.items()
    }


def _sums(
    store: Store, measurement: Measurement, tags: tuple[str, ...], shard: str | None
) -> list[tuple[dict[str, str], dict[str, int]]]:
    """Return each series' sums over all time."""
    fields = (one for one in measurement.fields if one.merge is schema.Merge.SUM and one.kind is schema.Kind.INT)
    sums = Select(measurement, measurement.kept).take(*map(total, fields)).by(*tags).between()
    asked = sums if shard is None else sums.where(is_in(schema.SHARD, [shard]))
    return [
        (series.tags, {name: value or 0 for name, value in zip(series.columns, series.values[0], strict=True)})
        for series in store.query(asked.text())
    ]
