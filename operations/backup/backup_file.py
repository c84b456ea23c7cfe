"""A backup: the bridge's checkpoint, the analysis' state, cluster.yaml, logs and events in one file.

A backup may be made while everything runs. Never in it: secrets, flow records, measurements.
"""

import errno
import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from analysis.jobs import register
from analysis.state import AUDIT
from analysis.state import FILE as STATE_FILE
from app import sqlite_file
from app.errors import NO_ROOM, ClusterflowError, ConfigError, UserError, of_disk
from app.version import own_version
from app.words import some
from cluster.document import read_text
from cluster.sources import files_of as files_of_cluster
from cluster.sources import named_in
from ingest import checkpoint
from operations.backup.backup_named import ELSEWHERE, is_named, text_of

FORMAT = 3
"""Of the archive; another one is refused."""

MANIFEST = "backup.json"
STATE, CONFIG, DELIVERY = "state", "config", "delivery"
"""First folders in the archive; files that cluster.yaml names outside of its own folder stand in CONFIG/ELSEWHERE."""

BRIDGE = "bridge"
"""The checkpoint's folder in the state folder, and in STATE."""

SQLITE_FILES = (STATE_FILE, register.FILE)
LOGS = (AUDIT,)

SPOOL, EVENTS = "spool", "events.sqlite"
"""The folder of events in `delivery.state`, and in DELIVERY; and its file."""

_EVENTS = f"{DELIVERY}/{SPOOL}/{EVENTS}"
_BESIDE_SPOOL = ("counters.json", "refused.jsonl", "refused.jsonl.1")
"""In `delivery.state`: counters, and what receivers refused for good."""

SUFFIXES = (".tar.gz", ".tgz")

_TAMPERED = "it was tampered with; nothing was changed, and --state-only would restore the state alone"
_NO_BACKUP = EOFError, OSError, KeyError, TypeError, ValueError, AttributeError
"""What reading anything else as a backup may raise, besides errors of the formats themselves."""

_NO_LINKS = errno.EPERM, errno.ENOTSUP, errno.ENOSYS
_TRIES = 50
_PAUSE = 0.1
_BLOCK = 1 << 20
_LATEST = 253_402_300_800
"""Epoch seconds at which the years end that a date can have."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where what is saved lies.

    Attributes:
        config: cluster.yaml.
        named: files that it names beside the inventory and rules; those that are not text, or large, are left out.
        state: `bridge.state`; None: the configuration alone.
        delivery: `delivery.state`; None: as `state`.
        has_destinations: whether a spool must be there; else it is where `clusterflow deliver` keeps the alert history.
    """

    config: Path
    named: Sequence[Path] = ()
    state: Path | None = None
    delivery: Path | None = None
    has_destinations: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """What a backup holds: names in the archive -> bytes; `missing`, what there was not, and why some was not taken."""

    files: dict[str, int]
    missing: tuple[str, ...]


def make_backup(target: Path, sources: Sources, scratch: Path) -> Summary:
    """Write an archive; it appears under its name only when it is whole.

    Args:
        target: .tar.gz, not there yet.
        sources: what is saved.
        scratch: folder for copies of SQLite files.

    Raises:
        UserError: the target is there, or is to be of another kind; or there is nothing of the state.
        ClusterflowError: something cannot be read or written.
    """
    if not target.name.endswith(SUFFIXES):
        raise UserError(f"{target}: expected a name that ends in {' or '.join(SUFFIXES)}")
    if os.path.lexists(target):
        raise _there_already(target)
    missing: list[str] = []
    try:
        with ExitStack() as opened:
            members = _config_files(sources, missing)
            if sources.state is not None:
                members |= _state(sources.state, sources.delivery, scratch, opened, missing)
                if sources.has_destinations and sources.delivery is not None and _EVENTS not in members:
                    missing.append(f"no spool of events in {sources.delivery / SPOOL}")
            places = {STATE: sources.state, DELIVERY: sources.delivery}
            lay = {name: str(place.resolve()) if place is not None else "" for name, place in places.items()}
            sizes = _write(target, members, {"config": sources.config.name, **lay})
    except OSError as error:
        raise of_disk(error.filename or target, error, "name a file that can be written") from error
    return Summary(sizes, tuple(missing))


def _config_files(sources: Sources, missing: list[str]) -> dict[str, IO[bytes]]:
    config, *needed = files_of_cluster(sources.config)
    text = config.read_bytes()
    # Of the text that is saved: by these names a restore knows what belongs to it.
    names = named_in(text.decode("utf-8-sig", "replace"), str(config))
    members: dict[str, IO[bytes]] = {f"{CONFIG}/{config.name}": io.BytesIO(text)}
    for number, path in enumerate([*needed, *sources.named], 1):
        place = _place_of(path, number, _named(config).parent, names)
        name = f"{CONFIG}/{place}"
        if not is_named(place, names):
            raise ClusterflowError(f"{config}: it was changed while it was saved: {path}", "try again")
        if number <= len(needed):
            try:
                # Whole: who writes over it meanwhile would leave another text than the one that was summed up.
                members[name] = io.BytesIO(path.read_bytes())
            except FileNotFoundError as error:
                # One with prefixes, whose last good version is in use.
                missing.append(f"without {path}: {error.strerror}")
        elif name not in members:
            try:
                members[name] = io.BytesIO(text_of(path))
            except ValueError as error:
                missing.append(f"without {path}: {error}")
    return members


def _place_of(path: Path, number: int, home: Path, names: Collection[str]) -> PurePosixPath:
    """Return where a file of the configuration stands below CONFIG."""
    whole = _named(path)
    if whole.is_relative_to(home) and is_named(place := PurePosixPath(whole.relative_to(home)), names):
        return place
    return PurePosixPath(ELSEWHERE, f"{number}-{whole.name}")


def _state(
    state: Path, delivery: Path | None, scratch: Path, opened: ExitStack, missing: list[str]
) -> dict[str, IO[bytes]]:
    """Return the files of the state, and add to what is missing; UserError where all of it is."""
    members = _checkpoint(state / BRIDGE, opened)
    members |= _databases({f"{STATE}/{name}": state / name for name in SQLITE_FILES}, scratch, opened)
    members |= _logs(STATE, [state / name for name in LOGS])
    if delivery is not None:
        # After the checkpoint, before the store: what was reported is then in the store's backup, too.
        members |= _databases({_EVENTS: delivery / SPOOL / EVENTS}, scratch, opened)
        members |= _logs(DELIVERY, [delivery / name for name in _BESIDE_SPOOL])
    if not members:
        places = " and ".join(str(place) for place in (state, delivery) if place is not None)
        raise UserError(
            f"{places}: nothing of the state is there: no checkpoint, no SQLite file, no log",
            "name the services' folder by bridge.state or --state; --config-only saves the configuration alone",
        )
    if f"{STATE}/{BRIDGE}/{checkpoint.MANIFEST}" not in members:
        missing.append(f"no checkpoint in {state / BRIDGE}")
    missing += [f"no {name} in {state}" for name in SQLITE_FILES if f"{STATE}/{name}" not in members]
    return members


def _named(path: Path) -> Path:
    """Return a whole path by the names that it has: a file that is a link comes back where the link was."""
    return Path(os.path.normpath(path.absolute()))


def _checkpoint(folder: Path, opened: ExitStack) -> dict[str, IO[bytes]]:
    """Return a checkpoint's files, open: those of one moment, which stay readable when the bridge removes them."""
    for _ in range(_TRIES):
        try:
            text = (folder / checkpoint.MANIFEST).read_bytes()
        except FileNotFoundError:
            return {}
        try:
            manifest = json.loads(text)
            checkpoint.check_version(folder / checkpoint.MANIFEST, manifest.get("version"))
            names = checkpoint.files_of(manifest)
        except (*_NO_BACKUP, RecursionError) as error:
            raise ClusterflowError(f"{folder}: the checkpoint is damaged: {error}") from error
        with ExitStack() as these:
            try:
                files = {name: these.enter_context((folder / name).open("rb")) for name in names}
            except FileNotFoundError:
                # The bridge has just saved a newer one.
                time.sleep(_PAUSE)
                continue
            opened.push(these.pop_all())
        # A bridge reads them at its next start only: damage of today is to be reported today, not after a restore.
        if (damaged := checkpoint.damaged_files(text, files)) is not None:
            raise ClusterflowError(
                f"{folder}: the checkpoint is damaged: {damaged} is not what it was",
                "a bridge that runs writes another one within seconds: try again",
            )
        members: dict[str, IO[bytes]] = {f"{STATE}/{BRIDGE}/{name}": file for name, file in files.items()}
        return members | {f"{STATE}/{BRIDGE}/{checkpoint.MANIFEST}": io.BytesIO(text)}
    raise ClusterflowError(f"{folder}: the checkpoint names files that are not there", "is it damaged?")


def _databases(paths: dict[str, Path], scratch: Path, opened: ExitStack) -> dict[str, IO[bytes]]:
    """Return copies of SQLite files, open, by their names in the archive."""
    members: dict[str, IO[bytes]] = {}
    for name, path in paths.items():
        copy = scratch / path.name
        if not path.exists():
            continue
        try:
            with closing(sqlite3.connect(copy)) as target:
                sqlite_file.copy(path, target)
                # One file, without a log beside it.
                target.execute("PRAGMA journal_mode = DELETE")
                (verdict,) = target.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise no_room(scratch, error) from error
            raise ClusterflowError(f"{path}: cannot be copied: {error}", sqlite_file.reader_remedy(error)) from error
        # Who has it open may not meet the damage for months, and a restore would bring it back.
        if verdict != "ok":
            raise ClusterflowError(f"{path}: is damaged: {verdict}", "restart its service, which moves it aside")
        members[name] = opened.enter_context(copy.open("rb"))
    return members


def _logs(folder: str, paths: Sequence[Path]) -> dict[str, IO[bytes]]:
    """Return files that are small, of logs their whole lines: they may grow while they are copied."""
    members: dict[str, IO[bytes]] = {}
    # The one before last after the last: what is moved meanwhile is there twice rather than not at all.
    for path in paths:
        if path.is_file():
            text = path.read_bytes()
            text = text if path.suffix == ".json" else text[: text.rfind(b"\n") + 1]
            members[f"{folder}/{path.name}"] = io.BytesIO(text)
    return members


def _write(target: Path, members: dict[str, IO[bytes]], places: dict[str, str]) -> dict[str, int]:
    described = {name: _described(file) for name, file in sorted(members.items())}
    manifest = {
        "format": FORMAT,
        "clusterflow": own_version(),
        "made": int(time.time()),
        "checkpoint_format": checkpoint.VERSION,
        "sqlite_format": sqlite_file.VERSION,
        **places,
        "files": described,
    }
    with _named_when_whole(target) as raw, tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6) as archive:
        text = json.dumps(manifest, indent=1).encode()
        _add(archive, MANIFEST, len(text), io.BytesIO(text))
        for name, facts in described.items():
            members[name].seek(0)
            _add(archive, name, facts["bytes"], members[name])
    return {name: facts["bytes"] for name, facts in described.items()}


@contextmanager
def _named_when_whole(target: Path) -> Iterator[IO[bytes]]:
    """Yield a new file for our user only, which gets its name when all of it is on disk: it names every node and rule.

    Until then it has a name that nobody can guess: in a folder that others write to, too, one that is known could be a
    link to a file of ours by then.
    """
    try:
        number, name = tempfile.mkstemp(".partial", f".{target.name}.", target.parent)
    except OSError as error:
        raise of_disk(target, error, "name a file that can be written") from error
    partial = Path(name)
    try:
        with os.fdopen(number, "wb") as raw:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
        _link(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _link(partial: Path, target: Path) -> None:
    """Give a file its name, but not that of one that came meanwhile."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise _there_already(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _take(partial, target)


def _take(partial: Path, target: Path) -> None:
    """Do the same where a disk has no hard links, as sticks and shares have none: the name is taken, then used."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise _there_already(target) from None
    try:
        partial.replace(target)
    except OSError:
        target.unlink()
        raise


def _there_already(target: Path) -> UserError:
    return UserError(f"{target}: is there already", "name another file")


def _described(file: IO[bytes]) -> dict[str, Any]:
    file.seek(0)
    size, digest = 0, hashlib.sha256()
    for block in _blocks(file):
        size += len(block)
        digest.update(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block


def _add(archive: tarfile.TarFile, name: str, size: int, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o640, int(time.time())
    archive.addfile(entry, file)


def no_room(place: Path | str, error: Exception) -> ClusterflowError:
    """Return why nothing can be copied or unpacked among the temporary files."""
    why = getattr(error, "strerror", None) or error
    return ClusterflowError(f"{place}: {why}", "make room there, or name another folder for temporary files by TMPDIR")


def unpack(source: Path, folder: Path) -> dict[str, Any]:
    """Check an archive and unpack it; return its manifest. Nothing outside of the folder is touched.

    Raises:
        UserError: it is no backup, of another version, or not what its checksums say.
        ClusterflowError: there is no room in the folder.
    """
    try:
        with tarfile.open(source, "r:gz") as archive:
            first = archive.next()
            manifest = _manifest(source, archive, first)
            wanted: dict[str, dict[str, Any]] = dict(manifest["files"])
            while (entry := archive.next()) is not None:
                facts = wanted.pop(entry.name, None)
                if facts is None or not entry.isreg() or not _is_ours(entry.name):
                    raise UserError(f"{source}: {entry.name!r} does not belong into a backup", "it was tampered with")
                _extract(source, archive, entry, facts, folder / entry.name)
    except (tarfile.TarError, zlib.error, RecursionError, *_NO_BACKUP) as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise no_room(folder, error) from error
        raise UserError(f"{source}: cannot be read as a backup: {error}") from error
    if wanted:
        raise UserError(f"{source}: lacks {min(wanted)}", "it was cut short")
    return manifest


def check_configuration(source: Path, folder: Path, config: str) -> None:
    """Refuse an archive whose configuration holds what no backup of ours does; nothing was put in place yet.

    Checksums show damage, not forgery: whoever made the archive must not thereby write any file beside cluster.yaml.

    Args:
        source: the archive, for people.
        folder: where `unpack` put it.
        config: name of its cluster.yaml.

    Raises:
        UserError: it holds a file that its own cluster.yaml does not name, or one that is no text.
    """
    home = folder / CONFIG
    try:
        names = named_in(read_text(home / config), config)
    except ConfigError as error:
        raise UserError(f"{source}: {config} cannot be read: {error.problems[0]}", _TAMPERED) from error
    others = [path for path in sorted(home.rglob("*")) if path.is_file() and path != home / config]
    places = {path: path.relative_to(home).as_posix() for path in others}
    foreign = [place for place in places.values() if not is_named(PurePosixPath(place), names)]
    if foreign:
        expected = f"only files that its {config} names, and no hidden ones"
        raise UserError(f"{source}: refused: {_some(foreign)}: expected {expected}", _TAMPERED)
    binary = [place for path, place in places.items() if _is_binary(path)]
    if binary:
        raise UserError(f"{source}: refused: {_some(binary)}: expected text", _TAMPERED)


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return any(b"\0" in block for block in _blocks(file))


def _some(places: Sequence[str]) -> str:
    """Return the first names of many, printable whatever is in them."""
    return some([*map(repr, places)], 3)


def _manifest(source: Path, archive: tarfile.TarFile, entry: tarfile.TarInfo | None) -> dict[str, Any]:
    file = archive.extractfile(entry) if entry is not None and entry.name == MANIFEST and entry.isreg() else None
    if file is None:
        raise UserError(f"{source}: is no backup of clusterflow", f"one begins with {MANIFEST}")
    manifest: dict[str, Any] = json.loads(file.read(_BLOCK * 64))
    _check_formats(source, manifest)
    expected = {
        "config": _is_plain(manifest["config"]) and f"{CONFIG}/{manifest['config']}" in manifest["files"],
        "state": isinstance(manifest["state"], str),
        "delivery": isinstance(manifest["delivery"], str),
        "made": type(manifest["made"]) is int and 0 <= manifest["made"] < _LATEST,
    }
    for what, is_so in expected.items():
        if not is_so:
            raise UserError(f"{source}: {MANIFEST}: {what}: {manifest[what]!r} makes no sense", "it was tampered with")
    return manifest


def _check_formats(source: Path, manifest: dict[str, Any]) -> None:
    """UserError if a part of an archive is older than what we read, or newer."""
    read = {
        "format": (FORMAT, FORMAT),
        "checkpoint_format": (checkpoint.VERSION, checkpoint.VERSION),
        "sqlite_format": (sqlite_file.FIRST, sqlite_file.VERSION),
    }
    by = manifest["clusterflow"]
    for what, (oldest, ours) in read.items():
        found = manifest[what]
        if type(found) is not int:
            raise ValueError(f"{what}: {found!r} makes no sense")
        if found > ours:
            raise UserError(
                f"{source}: made by a newer clusterflow, {by}: {what} {found}, this one reads {ours}",
                "install that version, or a newer one, and restore it with that; nothing was changed",
            )
        if found < oldest:
            raise UserError(
                f"{source}: made by an older clusterflow, {by}: {what} {found}, this one reads {ours}",
                "restore it with that version, then upgrade",
            )


def _is_plain(name: object) -> bool:
    """Whether a name is that of a file or folder, and leads nowhere else."""
    return isinstance(name, str) and name not in {"", ".", ".."} and not set(name) & set("/\\\0")


def _is_ours(name: str) -> bool:
    """Whether a member is one that we write: a plain relative path below our folders."""
    parts = name.split("/")
    if not all(_is_plain(part) for part in parts) or len(parts) < 2:
        return False
    if parts[0] == CONFIG:
        return True
    if parts[0] == DELIVERY:
        return name == _EVENTS or (len(parts) == 2 and parts[1] in _BESIDE_SPOOL)
    if parts[:2] == [STATE, BRIDGE]:
        return len(parts) == 3 and (parts[2] == checkpoint.MANIFEST or parts[2].endswith(".arrow"))
    return parts[0] == STATE and len(parts) == 2 and parts[1] in {*SQLITE_FILES, *LOGS}


def _extract(
    source: Path, archive: tarfile.TarFile, entry: tarfile.TarInfo, facts: dict[str, Any], target: Path
) -> None:
    file = archive.extractfile(entry)
    if file is None or entry.size != facts["bytes"]:
        raise UserError(f"{source}: {entry.name} is not as long as it was", "it was damaged")
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with target.open("xb") as out:
        for block in _blocks(file):
            digest.update(block)
            out.write(block)
    if digest.hexdigest() != facts["sha256"]:
        raise UserError(f"{source}: {entry.name} is not what it was", "it was damaged")
