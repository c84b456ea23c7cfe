"""Copies of hours that are over, in S3-compatible storage: local disks keep the newest, the bucket all.

`BUCKET/FOLDER/SHARD/ID/sorted/*.parquet`, named as on the disk, and `manifest.json` beside them. The id is of one
disk's archive: another one of the same shard never writes there. A file is copied once nothing changes it any more; the
list names it when it is there; the disk lets it go when its checkpoint has noted that. Killed in between, the same
bytes are copied again under the same name.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.errors import UserError
from archive.manifest import HOUR, MANIFEST, Manifest
from cluster.model import ArchiveSettings
from store.influx import read_secret

_SCHEME = "s3://"
_ONE_TRY = {"max_retries": 1}
_WAITS = {"connect_timeout": "5s", "timeout": "60s"}


@dataclass(frozen=True, slots=True)
class Shard:
    """What a bucket has of one disk's archive."""

    name: str
    place: str
    url: str
    manifest: Manifest


class Bucket:
    """A bucket.

    Args:
        settings: where it is, and where its keys are.

    Attributes:
        options: of polars' readers.

    Raises:
        UserError: the library is not installed, or a key is not where it should be.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        try:
            import obstore.store  # noqa: PLC0415 - an optional dependency
        except ImportError as error:
            hint = "pip install 'clusterflow[s3]'"
            raise UserError("archive.bucket: the client of S3 storage is not installed", hint) from error
        self.url = settings.bucket or ""
        name, _, prefix = self.url.removeprefix(_SCHEME).partition("/")
        endpoint = settings.bucket_endpoint
        known = {
            "aws_endpoint_url": endpoint or "",
            "aws_allow_http": "true" if endpoint and endpoint.startswith("http:") else "",
            "aws_region": settings.bucket_region or "",
            "aws_access_key_id": read_secret(settings.bucket_key_id),
            "aws_secret_access_key": read_secret(settings.bucket_key),
        }
        self.options = {option: value for option, value in known.items() if value}
        self._keep = settings.bucket_keep
        self._library: Any = obstore
        self._store: Any = self._library.store.S3Store(
            name, prefix=prefix or None, config=self.options, client_options=_WAITS, retry_config=_ONE_TRY
        )

    def copy(self, folder: Path, manifest: Manifest, over: int, now: float, is_stopped: Callable[[], bool]) -> set[str]:
        """Bring a disk's archive to the bucket: what is not there, and the list; drop what is too old.

        Args:
            folder: of the archive, named as its shard.
            manifest: what its checkpoint holds.
            over: begin of the first hour that is not over.
            now: epoch seconds by which hours grow old.
            is_stopped: whether another process may have the folder soon: ends between two files.

        Returns:
            Names of files that are there.

        Raises:
            Exception: what the library raises where the bucket is away or refuses; OSError, where its list is gone too.
        """
        below = f"{folder.name}/{manifest.place}"
        there = self._list_of(below)
        pages = self._library.list(self._store, below)
        sizes = {one["path"].removeprefix(f"{below}/"): one["size"] for page in pages for one in page}
        if unknown := sizes.keys() - {MANIFEST} - {file.name for file in manifest.files} if not there.files else None:
            # Killed before its first list it would know these. They are history: nothing is deleted without a list.
            raise FileNotFoundError(f"{below}/{MANIFEST} is gone, {len(unknown)} files are there: bring it back")
        files = {file.name: file for file in there.files}
        for file in manifest.whole_files(over):
            if is_stopped():
                return set()
            if sizes.get(file.name) != file.size:
                self._library.put(self._store, f"{below}/{file.name}", folder / file.name)
                sizes[file.name] = file.size
            files[file.name] = file
        limit = (now - self._keep) // HOUR * HOUR
        local = {file.name for file in manifest.files}
        kept = {
            name: file for name, file in sorted(files.items())
            if sizes.get(name) == file.size and (file.hour >= limit or name in local)
        }  # fmt: skip
        if [*kept] != [file.name for file in there.files]:
            gone = [(file.hour, file.rows) for name, file in files.items() if name not in kept]
            notes = replace(there, files=[*kept.values()], deleted=there.deleted + gone).notes()
            self._library.put(self._store, f"{below}/{MANIFEST}", json.dumps(notes).encode())
        if strangers := [f"{below}/{name}" for name in sizes if name not in kept and name != MANIFEST]:
            self._library.delete(self._store, strangers)
        return {*kept}

    def shards(self) -> Iterator[Shard]:
        """Yield what the bucket has; what the library raises where it is away."""
        for shard in self._below(""):
            for path in self._below(shard):
                name, _, place = path.rpartition("/")
                yield Shard(name, place, f"{self.url.rstrip('/')}/{path}", self._list_of(path))

    def _below(self, path: str) -> Sequence[str]:
        found: Sequence[str] = self._library.list_with_delimiter(self._store, path or None)["common_prefixes"]
        return found

    def _list_of(self, path: str) -> Manifest:
        with suppress(FileNotFoundError, self._library.exceptions.NotFoundError):
            return Manifest.of(json.loads(bytes(self._library.get(self._store, f"{path}/{MANIFEST}").bytes())))
        return Manifest()
