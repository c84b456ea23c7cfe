"""The reader: who talked to whom, on which ports, when. A plain function from a question to a frame.

Rows whose record ended in the period count, whole: the answers of two periods that follow each other add up.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import polars as pl

from app.errors import FOREIGN, UserError, of_disk
from app.units import format_moment
from archive import layout, schema
from archive.bucket import Bucket
from archive.manifest import HOUR, MANIFEST, Manifest, Tally, pending_lists, read_manifest
from archive.once import counted_by, counted_once
from archive.partition import partition_of
from archive.tally import NOTHING, Rows, best_of, counted_between, counted_with, is_whole, numbered, read_tally
from archive.writer import size_of
from cluster.model import ArchiveSettings, Cluster

_BELOW = "*", "*/*", "*/*/*"
"""Where shards are: also in the mounted archive or state of other machines."""
_UNDECIDED_SECONDS = 60
_SUMS = (schema.BYTES, schema.PACKETS, schema.FLOWS)
_SIDES = ("src", "dst")
_Inside = Callable[[Sequence[str]], list[str]]
"""Addresses of the archive that are in one of these prefixes."""

Grouping: TypeAlias = Sequence[str | pl.Expr]
"""What further sums are of: columns, or expressions over them."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A question. Texts of one field are alternatives; fields hold together; empty ones ask nothing.

    Attributes:
        start, stop: epoch seconds, [start, stop).
        src, dst: what one side is: an address, a prefix, a node or a group.
        address, prefix, node, group, port: of either side.
        protocol: name, such as tcp.
        exporter: name.
        interface: name, in or out.
        either_way: whether `src` and `dst` are the two ends of a conversation rather than of each record.
        served: what one side serves: protocol, ports, groups it is of; without groups, any.
    """

    start: int
    stop: int
    src: tuple[str, ...] = ()
    dst: tuple[str, ...] = ()
    address: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    port: tuple[int, ...] = ()
    protocol: tuple[str, ...] = ()
    exporter: tuple[str, ...] = ()
    interface: tuple[str, ...] = ()
    either_way: bool = False
    served: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found.

    Attributes:
        frame: a row for each value of the columns asked by, with bytes, packets, flows, start, end; largest first.
        bytes, packets, flows: sums over all of it, what `most` cut off included.
        all_bytes: all traffic of the period that counts.
        suppressed_bytes: what matched and is another exporter's to count.
        sampled_bytes: those of `bytes` that are estimated from samples.
        heard: exporters of which there is any record in the period.
        gaps: what the period lacks, a sentence each.
        rows: of the frame before `most` cut it.
        also: bytes by the further grouping that was asked for.
    """

    frame: pl.DataFrame
    bytes: int
    packets: int
    flows: int
    all_bytes: int
    suppressed_bytes: int
    sampled_bytes: int
    heard: frozenset[str]
    gaps: tuple[str, ...]
    rows: int
    also: pl.DataFrame | None = None

    @property
    def share(self) -> float:
        """Return the part of all traffic, 0 to 1."""
        return self.bytes / self.all_bytes if self.all_bytes else 0.0


def archive_folder(cluster: Cluster) -> Path:
    """Return where a cluster's bridges and workers write, a folder a shard, or folders of several machines."""
    return Path(cluster.archive.folder or Path(cluster.bridge.state) / "archive")


def ask(
    folder: Path,
    question: Filter,
    by: Sequence[str] = (),
    *,
    order: str = schema.BYTES,
    most: int | None = None,
    also: Grouping | None = None,
    settings: ArchiveSettings | None = None,
) -> Answer:
    """Answer a question from all shards below a folder, or in folders below it, and from the bucket.

    Args:
        folder: as `archive_folder` gives it.
        question: what is asked.
        by: columns of `archive.schema`; without any, single rows.
        order: a column of the answer, the largest first.
        most: rows of the answer; None: all.
        also: a further grouping of the same rows, all of it.
        settings: they may name a bucket, which is asked of hours that are over.

    Raises:
        UserError: there is no archive, it cannot be read, or a column or a prefix makes no sense.
    """
    known = [*schema.SCHEMA]
    for name in by:
        if name not in known or name in _SUMS:
            raise UserError(
                f"--by {name}: no such column", f"there are {', '.join(n for n in known if n not in _SUMS)}"
            )
    for attempt in range(3):
        shards, away = _shards(folder, question, settings)
        try:
            return _answer(shards, away, question, by, order, most, also)
        except (FileNotFoundError, pl.exceptions.ComputeError, OSError) as error:
            # The writer merges files meanwhile.
            if attempt == 2:
                raise UserError(f"{folder}: cannot be read: {error}", "is the disk well? ask again") from error
    raise AssertionError


@dataclass(frozen=True, slots=True)
class _Shard:
    """An archive of one disk, or what only the bucket has of one.

    Attributes:
        name: what is compared with each other.
        url: in the bucket; None: on a disk.
    """

    folder: Path
    name: str
    manifest: Manifest
    url: str | None = None
    options: dict[str, str] | None = None


def _shards(folder: Path, question: Filter, settings: ArchiveSettings | None) -> tuple[list[_Shard], list[str]]:
    """Return what there is, and a sentence where the bucket does not answer."""
    found: list[_Shard] = []
    _refuse_foreign(folder)
    for path in sorted(path for below in _BELOW for path in folder.glob(f"{below}/{MANIFEST}")):
        try:
            manifest = read_manifest(path.parent)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {error}", "was it written by another version?") from error
        if manifest is not None:
            # A Kafka partition that went from worker to worker has several folders.
            found.append(_Shard(path.parent, partition_of(path.parent)[0], manifest))
    away = []
    # What is newer is on disks.
    if settings is not None and settings.bucket and question.start < time.time() - HOUR:
        for shard in found:
            # A list may still name what the disk has just let go.
            files, folder = shard.manifest.files, shard.folder
            shard.manifest.files = [one for one in files if not one.copied or size_of(folder / one.name) == one.size]
        try:
            found += _in_bucket(Bucket(settings), found)
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - what disks have is told, whatever a bucket does
            away.append(f"{settings.bucket} does not answer: hours that only it has are missing ({_first_line(error)})")
    if not found:
        hint = "the bridge writes it (archive.enabled); set archive.folder or bridge.state as its cluster.yaml has them"
        raise UserError(f"{folder}: no flow archive", away[0] if away else hint)
    return found, away


def _refuse_foreign(folder: Path) -> None:
    """Raise UserError where the folder may not be read: a look for files passes it over, as if there were none."""
    try:
        next(folder.iterdir(), None)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise of_disk(folder, error, FOREIGN) from error


def _in_bucket(bucket: Bucket, local: Sequence[_Shard]) -> Iterator[_Shard]:
    """Yield what is in the bucket and not on a disk here."""
    here = {(shard.manifest.place, file.name) for shard in local for file in shard.manifest.files}
    for copied in bucket.shards():
        files = [file for file in copied.manifest.files if (copied.place, file.name) not in here]
        manifest = replace(copied.manifest, files=files)
        yield _Shard(Path(copied.name), partition_of(Path(copied.name))[0], manifest, copied.url, bucket.options)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _answer(  # noqa: PLR0917 - see ask
    shards: Sequence[_Shard],
    away: Sequence[str],
    question: Filter,
    by: Sequence[str],
    order: str,
    most: int | None,
    also: Grouping | None,
) -> Answer:
    gaps = [*away, *(gap for shard in shards for gap in _gaps(shard.folder, shard.manifest, question))]
    files = [*_files(shards, question)]
    gaps += _absent(shards, files)
    gaps += [
        f"{Path(file.path).name} is gone or cut off: {file.rows:,} rows are missing"
        for file in files
        if not file.is_there
    ]
    files = [file for file in files if file.is_there]
    if files:
        condition = _condition(question, files)
        rows = _rows(files, question, condition.conversation)
        if condition.place is not None:
            rows = rows.filter(condition.place)
    else:
        gaps.append("the archive has nothing of this period")
        rows = pl.DataFrame(schema=schema.SCHEMA).lazy()
    counted = rows.filter(pl.col(schema.COUNTED)).drop(schema.COUNTED, schema.RANK)
    found = _grouped(counted, by)
    names = found.collect_schema().names()
    if order not in names:
        raise UserError(f"--order {order}: not in the answer", f"there are {', '.join(names)}")
    if most is not None and not by:
        # Of single records there may be more than memory has room for.
        found = found.top_k(most, by=order)
    is_counted = pl.col(schema.COUNTED)
    sums = rows.select(
        *(pl.col(name).filter(is_counted).sum() for name in _SUMS),
        is_counted.sum().alias("rows"),
        pl.col(schema.BYTES).filter(~is_counted).sum().alias("left"),
        pl.col(schema.BYTES).filter(is_counted, pl.col(schema.RATE) > 1).sum().alias("sampled"),
    )
    further = [] if also is None else [counted.group_by(*also).agg(pl.sum(schema.BYTES))]
    asked = [found, sums, *further]
    # What they have in common is kept in memory: little of an address, much of all traffic, which each reads by itself.
    shown, summed, *further_found = (
        pl.collect_all(asked, engine="streaming")
        if _is_narrow(question)
        else [one.collect(engine="streaming") for one in asked]
    )
    shown = shown.sort(order, *by, descending=[True] + [False] * len(by))
    totals = {name: int(value or 0) for name, value in summed.row(0, named=True).items()}
    all_bytes, heard = _all_traffic(files, question)
    return Answer(
        shown if most is None else shown.head(most),
        bytes=totals[schema.BYTES],
        packets=totals[schema.PACKETS],
        flows=totals[schema.FLOWS],
        all_bytes=all_bytes,
        suppressed_bytes=totals["left"],
        sampled_bytes=totals["sampled"],
        heard=heard,
        gaps=tuple(gaps),
        rows=shown.height if by else totals["rows"],
        also=further_found[0] if further_found else None,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of a shard that the question needs.

    Attributes:
        path: of the disk, or its address in the bucket.
        options: polars' for that address.
        folder: that its name is below.
        shard: what is compared with each other.
        tally: that has its rows.
        is_told: whether its `counted` is final.
        is_inside: whether all its rows are in the period.
    """

    path: str
    options: dict[str, str] | None
    folder: Path
    shard: str
    hour: int
    rows: int
    ranked: int
    counted_bytes: int
    tally: Tally | None
    is_there: bool
    is_told: bool
    is_inside: bool


def _files(shards: Sequence[_Shard], question: Filter) -> Iterator[_Part]:
    ranked: Counter[tuple[str, int]] = Counter()
    for shard in shards:
        ranked.update({(shard.name, hour): rows for hour, rows in shard.manifest.ranked().items()})
    untold = {
        (shard.name, file.hour)
        for shard in shards
        for file in shard.manifest.files
        if file.ranked and file.decided != ranked[shard.name, file.hour]
    }
    for shard in shards:
        tallies = {tally.hour: tally for tally in shard.manifest.tallies}
        for file in shard.manifest.files:
            # A row of which nobody has told whether it counts is compared with others of its hour.
            is_told = not file.ranked or (shard.name, file.hour) not in untold
            first, last = (file.first, file.last) if is_told else (file.hour, file.hour + HOUR - 1)
            if first < question.stop and last >= question.start:
                path = shard.folder / file.name
                is_inside = question.start <= file.first and file.last < question.stop
                is_there = shard.url is not None or size_of(path) == file.size
                tally = tallies.get(file.hour) if file.tallied else None
                yield _Part(
                    f"{shard.url or shard.folder}/{file.name}", shard.options, shard.folder, shard.name, file.hour,
                    file.rows, file.ranked, file.counted_bytes, tally, is_there, is_told, is_inside,
                )  # fmt: skip


def _absent(shards: Sequence[_Shard], files: Sequence[_Part]) -> list[str]:
    """Tell which Kafka partitions have nothing of the period: their workers' folders may not be here."""
    count = max((shard.manifest.partitions for shard in shards), default=0)
    there = {partition_of(Path(file.shard))[1] for file in files}
    absent = [str(number) for number in range(count) if number not in there]
    if not absent or len(absent) == count:
        return []
    what = "Kafka partition" if len(absent) == 1 else "Kafka partitions"
    return [f"nothing of {what} {', '.join(absent)}: are the folders of all workers here?"]


def _is_narrow(question: Filter) -> bool:
    return bool(question.address or question.node or any(_parsed(text) for text in (*question.src, *question.dst)))


def _within(question: Filter) -> pl.Expr:
    return (pl.col(schema.END) >= question.start) & (pl.col(schema.END) < question.stop)


def _grouped(rows: pl.LazyFrame, by: Sequence[str]) -> pl.LazyFrame:
    if not by:
        return rows.drop(schema.COUNTED, schema.RANK, strict=False)
    ends = [] if schema.START in by or schema.END in by else [pl.min(schema.START), pl.max(schema.END)]
    return rows.group_by(*by).agg(*(pl.sum(name) for name in _SUMS), *ends)


def _rows(files: Sequence[_Part], question: Filter, conditions: Sequence[pl.Expr]) -> pl.LazyFrame:
    """Return the rows of the period that meet one of several conditions that exclude each other.

    Each is read by its own statistics. They are about conversations: all of one are there when it is told who counts.
    """
    told = [file for file in files if file.is_told]
    # Times of files that are inside are not looked at: that is a tenth of a day's question.
    inside = [file for file in told if file.is_inside]
    edge = [file for file in told if not file.is_inside]
    found = [_scanned(inside, conditions)] if inside else []
    rest = [_scanned(edge, conditions)] if edge else []
    for shard in _untold(files):
        rows = _scanned(shard, conditions)
        # Of few conversations the rows themselves tell; of all rows the joins would take gigabytes.
        rest.append(counted_once(rows) if _is_narrow(question) else counted_by(rows, _best_of(shard)))
    return pl.concat([*found, *(rows.filter(_within(question)) for rows in rest)])


def _untold(files: Sequence[_Part]) -> list[list[_Part]]:
    """Return the files of which nobody has told what counts, by shard."""
    untold = sorted((file for file in files if not file.is_told), key=lambda file: file.shard)
    return [[*shard] for _, shard in groupby(untold, key=lambda file: file.shard)]


def _scanned(files: Sequence[_Part], conditions: Sequence[pl.Expr] = ()) -> pl.LazyFrame:
    places = [[file for file in files if file.options is None], [file for file in files if file.options is not None]]
    scanned = [
        pl.scan_parquet([one.path for one in place], hive_partitioning=False, storage_options=place[0].options)
        for place in places
        if place
    ]
    return pl.concat([one.filter(what) for one in scanned for what in conditions] if conditions else scanned)


def _all_traffic(files: Sequence[_Part], question: Filter) -> tuple[int, frozenset[str]]:
    """Return the bytes of all that counts in the period, and whose records there are: rows are read at its edges."""
    named = [layout.exporters(file.path, file.options) if file.is_inside else None for file in files]
    heard = {name for names in named for name in names or ()}
    if unknown := [file for file, names in zip(files, named, strict=True) if names is None]:
        rows = _scanned(unknown).filter(_within(question)).select(pl.col(schema.EXPORTER).unique())
        heard |= set(rows.collect(engine="streaming")[schema.EXPORTER])
    told = [file for file in files if file.is_told]
    total = sum(file.counted_bytes for file in told if file.is_inside)
    total += _told_bytes([file for file in told if not file.is_inside], question)
    for shard in _untold(files):
        hours = groupby(sorted(shard, key=lambda file: file.hour), key=lambda file: file.hour)
        total += sum(_untold_bytes([*hour], question) for _, hour in hours)
    return total, frozenset(heard)


def _told_bytes(files: Sequence[_Part], question: Filter) -> int:
    """Return the bytes that count of rows of which it is not asked, or no more."""
    if not files:
        return 0
    is_told = pl.col(schema.COUNTED) if files[0].is_told else pl.col(schema.COUNTED) & (pl.col(schema.RANK) == 0)
    rows = _scanned(files).filter(_within(question) & is_told)
    return int(rows.select(pl.sum(schema.BYTES)).collect(engine="streaming").item())


def _untold_bytes(files: Sequence[_Part], question: Filter) -> int:
    """Return the bytes that count of a shard's hour, of whose files none is told."""
    tally, known, rest = _known(files)
    more = numbered(_scanned(rest)) if rest else NOTHING
    if tally is not None and all(file.is_inside for file in files):
        bytes_ = tally.told_bytes + counted_with(known, tally.counted_bytes, more)
        files = rest
    else:
        bytes_ = counted_between([known, more], question.start, question.stop)
    return bytes_ + _told_bytes([file for file in files if file.ranked < file.rows], question)


def _known(files: Sequence[_Part]) -> tuple[Tally | None, Rows, list[_Part]]:
    """Return the tally of a shard's hour with its rows, and the files that are not in it."""
    tallied = [(file.folder, file.tally) for file in files if file.tally is not None]
    folder, tally = max(tallied, key=lambda one: one[1].rows, default=(Path(), None))
    mine = [file for file in files if file.tally is not None and file.tally == tally and file.folder == folder]
    if tally is None or sum(file.ranked for file in mine) != tally.rows or not is_whole(folder, tally):
        return None, NOTHING, [*files]
    return tally, read_tally(folder, tally), [file for file in files if file not in mine]


def _best_of(shard: Sequence[_Part]) -> pl.DataFrame:
    """Return `tally.best_of` of a shard's files, none of which is told."""
    found = []
    for _, hour in groupby(sorted(shard, key=lambda file: file.hour), key=lambda file: file.hour):
        _, known, rest = _known([*hour])
        found.append(best_of([known, numbered(_scanned(rest)) if rest else NOTHING]))
    return pl.concat(found)


def _gaps(folder: Path, manifest: Manifest, question: Filter) -> list[str]:
    def hours(first: int, last: int) -> bool:
        return first < question.stop and last + HOUR > question.start

    gaps = []
    deleted = [(hour, rows) for hour, rows in manifest.deleted if hours(hour, hour)]
    if deleted:
        first, last = (format_moment(moment) for moment in (min(deleted)[0], max(deleted)[0] + HOUR))
        gaps.append(f"deleted to make room: {sum(rows for _, rows in deleted):,} rows from {first} to {last}")
    lost = [(first, last, rows, why) for first, last, rows, why in manifest.lost if hours(first, last)]
    if lost:
        why = lost[-1][3]
        gaps.append(f"not written, or lost since: {sum(rows for _, _, rows, _ in lost):,} rows ({why})")
    with contextlib.suppress(OSError):
        left = max((path.stat().st_mtime for path in pending_lists(folder)), default=time.time())
        if time.time() - left > _UNDECIDED_SECONDS and left + HOUR > question.start:
            gaps.append(f"the last rows of a worker that died ({folder}): start a worker there, and they are settled")
    return gaps


# -- conditions ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Condition:
    """What rows meet.

    Attributes:
        conversation: by what a conversation is: alternatives that exclude each other; empty: all.
        place: by where it was seen.
    """

    conversation: tuple[pl.Expr, ...]
    place: pl.Expr | None


def _condition(question: Filter, files: Sequence[_Part]) -> _Condition:
    known: list[set[str]] = []

    def inside(texts: Sequence[str]) -> list[str]:
        if not known:
            known.append(_addresses(files))
        return _members(texts, known[0])

    wholes = [
        *_ends(question, inside),
        *_either_port(question.port),
        *_serving(question.served),
        *([pl.col(schema.PROTOCOL).is_in(question.protocol)] if question.protocol else []),
    ]
    asked = (
        ("", question.address, [_spelled(text) for text in question.address]),
        ("_node", question.node, question.node),
        ("_group", question.group, question.group),
        # A prefix of which the archive has no address finds nothing.
        ("", question.prefix, inside(question.prefix) if question.prefix else ()),
    )
    sided = [
        (pl.col(f"src{column}").is_in(values), pl.col(f"dst{column}").is_in(values))
        for column, texts, values in asked
        if texts
    ]
    conversation: tuple[pl.Expr, ...] = ()
    if sided:
        # Each side by itself: statistics of one column then tell which row groups to skip.
        (one, other), *rest = sided
        whole = pl.all_horizontal(*wholes, *(left | right for left, right in rest), pl.lit(True))
        conversation = (one & whole, other & ~one & whole)
    elif wholes:
        conversation = (pl.all_horizontal(wholes),)
    return _Condition(conversation, _place(question))


def _either_port(ports: Sequence[int]) -> list[pl.Expr]:
    return [pl.col(schema.SRC_PORT).is_in(ports) | pl.col(schema.DST_PORT).is_in(ports)] if ports else []


def _serving(served: Sequence[tuple[str, tuple[int, ...], tuple[str, ...]]]) -> list[pl.Expr]:
    found = [
        pl.col(schema.PROTOCOL).eq(protocol)
        & pl.col(f"{side}_port").is_in(ports)
        & (pl.col(f"{side}_group").is_in(groups) if groups else pl.lit(True))
        for protocol, ports, groups in served
        for side in _SIDES
    ]
    return [pl.any_horizontal(found)] if found else []


def _place(question: Filter) -> pl.Expr | None:
    places = [pl.col(schema.EXPORTER).is_in(question.exporter)] if question.exporter else []
    if question.interface:
        entered, left = (pl.col(name).is_in(question.interface) for name in (schema.IN_INTERFACE, schema.OUT_INTERFACE))
        places.append(entered | left)
    return pl.all_horizontal(places) if places else None


def _ends(question: Filter, inside: _Inside) -> list[pl.Expr]:
    given = [texts for texts in (question.src, question.dst) if texts]
    sides = _SIDES if question.src else _SIDES[::-1]
    forth = [_end(side, texts, inside) for side, texts in zip(sides, given, strict=False)]
    if not question.either_way or not given:
        return forth
    back = [_end(side, texts, inside) for side, texts in zip(sides[::-1], given, strict=False)]
    return [pl.all_horizontal(forth) | pl.all_horizontal(back)]


def end_is(side: str, texts: Sequence[str], rows: pl.DataFrame) -> pl.Expr:
    """Return the condition that one side of archived rows, src or dst, is what one of several texts says."""
    return _end(side, texts, lambda prefixes: _members(prefixes, set(rows[side].unique())))


def _end(side: str, texts: Sequence[str], inside: _Inside) -> pl.Expr:
    """Return the condition on one side: each text is an address, a prefix, or the name of a node or a group."""
    prefixes = [text for text in texts if "/" in text]
    # No name has a colon: what has one is to be an address.
    named = [text for text in texts if not {"/", ":"} & {*text} and not _parsed(text)]
    addresses = [_spelled(text) for text in texts if "/" not in text and text not in named]
    met = [
        pl.col(column).is_in(values)
        for column, values in (
            (side, addresses + (inside(prefixes) if prefixes else [])), (f"{side}_node", named),
            (f"{side}_group", named),
        )
        if values
    ] or [pl.lit(False)]  # fmt: skip
    return pl.any_horizontal(met)


def _addresses(files: Sequence[_Part]) -> set[str]:
    scanned = _scanned(files)
    both = [scanned.select(pl.col(name).alias("a").unique()) for name in (schema.SRC, schema.DST)]
    return set(pl.concat(both).unique().collect(engine="streaming").get_column("a").to_list())


def _members(texts: Sequence[str], addresses: set[str]) -> list[str]:
    networks = [_network(text) for text in texts]
    found = []
    for text in addresses:
        one = ip_address(text)
        if any(one.version == network.version and one in network for network in networks):
            found.append(text)
    return found


def _network(text: str) -> IPv4Network | IPv6Network:
    with contextlib.suppress(ValueError):
        return ip_network(text)
    hint = "such as 10.20.0.0/16"
    with contextlib.suppress(ValueError):
        hint = f"host bits are set: write {ip_network(text, strict=False)}"
    raise UserError(f"{text}: expected a prefix", hint)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _spelled(text: str) -> str:
    """Return an address as the archive spells it."""
    one = _parsed(text)
    if one is None:
        raise UserError(f"{text}: expected an address", "such as 10.20.0.7 or 2001:db8::7")
    return str(getattr(one, "ipv4_mapped", None) or one)
