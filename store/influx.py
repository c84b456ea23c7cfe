"""InfluxDB behind one small interface: make retentions, write line protocol, ask InfluxQL.

InfluxDB 1.x is written through ``/write``; 2.x (and 1.8 on request) through influxdb-client. Both answer
InfluxQL at ``/query``. On 2.x a retention is the bucket ``database/retention``, which its DBRP mapping finds by itself.
"""

import gzip
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt
import polars as pl
import requests
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, ReadTimeoutError

from app.errors import StoreError, UserError
from cluster.model import Retention, Secret, StoreApi, StoreSettings
from store.influxql import BESIDE, Select, identifier, labelled
from store.schema import HOUR, MINUTE, RAW, Measurement

if TYPE_CHECKING:
    from store.influx_v2 import ApiRefusal, InfluxClient

_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 60.0
"""A host that swallows packets must not hold up a process that is asked to stop."""

REQUEST_SECONDS = _CONNECT_SECONDS + _ANSWER_SECONDS
"""When a request has come to its end, one way or the other."""

_CA_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Where an administrator names the authorities that this machine trusts, by the custom of requests and curl."""

_AFTER, _AFTER_HEAD, _SECOND = "SHOW DATABASES", b"name,tags,name\n", b',{"statement_id":1'
"""A statement that always has an answer, and how that begins in CSV, and in JSON after that of another one.

It is asked after each question: InfluxDB runs no further statement once one failed or `max-row-limit` left out rows.
Its mark `partial` does not tell: 1.6 leaves it on whole series of more than 10,000 rows, and where the first series of
an answer ends at the limit there is none.
"""
_TAGS = "tags"
_FEW_TAGS = 2
"""In CSV they stand in each row."""
_SHORT = {RAW: 60, MINUTE: 360, HOUR: 21_600}
"""Seconds in which a series has about six rows."""
_PART_BYTES = 1 << 23
"""Of an answer in CSV that are looked at at a time: all may be a hundred megabytes."""

_COMMA, _ESCAPED = re.compile(r"(?<!\\),"), re.compile(r"\\([,= ])")

_WRITTEN = 204
"""What every InfluxDB answers to a write that it took: 200 is the page of somebody in its place."""

_DROPPED = re.compile(r"dropped=(\d+)")
_UNREADABLE = "unable to parse"
_FULL = "no space left on device"
"""InfluxDB 1.x goes on to say so when there is space again: what writes its log keeps its first error."""

_MOST_TRIES = 500
"""Requests that finding the lines which 2.x cannot read may take; some thousand points are worth no more."""

_NO_DATABASE = "database not found: "
_MAKER = "start `clusterflow ingest`, which makes what is missing"
_LACKS = re.compile(rf'{_NO_DATABASE}|retention policy not found: |bucket \\?"[^"]+" not found')
"""What InfluxDB says without a database, retention policy or bucket. An ingress says "not found" of much else."""
_VERSION = "X-Influxdb-Version"
_HTTPS_ONLY = "HTTP request to an HTTPS server"
"""In InfluxDB's own words before it reads a request, without the header."""
_NOT_ALLOWED = "not authorized"
_LARGER = "let InfluxDB (max-body-size), or the proxy before it (nginx: client_max_body_size), take 25 MB"
_TOO_MUCH = re.compile("max-select-|query-timeout")
"""Limits of influxdb.conf that a question about less may keep."""


class StoreUnavailableError(StoreError):
    """The server is away, overloaded or broken: the same write may succeed later.

    Args:
        message: what happened.
        hint: what to do.
        retry_after: seconds for which the server asked to be left alone.
    """

    def __init__(self, message: str, hint: str = "", *, retry_after: float = 0.0) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class PartialWriteError(StoreError):
    """The server took the batch but refused some of its points, for good.

    Args:
        message: the server's words.
        dropped: points it says it refused (1 where it does not say).
        too_old: whether it refused them because the retention does not reach back so far.
    """

    def __init__(self, message: str, *, dropped: int, too_old: bool) -> None:
        super().__init__(message)
        self.dropped = dropped
        self.too_old = too_old


class LacksDatabaseError(StoreError):
    """The server is there, but not the database, the retention policy or the bucket."""


class PartialAnswerError(StoreError):
    """The server left out rows of an answer, or all of it: it was too much for one of its limits."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an InfluxQL answer; `values` are rows in the order of `columns`, times in epoch milliseconds."""

    name: str
    tags: dict[str, str]
    columns: list[str]
    values: list[list[Any]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What many series answered, as one matrix: for a thousand nodes' windows, where `Series` would be too slow.

    Attributes:
        tags: a row a series, a column a tag; and ROWS.
        columns: names of the matrix's columns; the first is ``time``, epoch milliseconds.
        values: [row, column], the series' rows one after the other; NaN where there is no value.
    """

    tags: pl.DataFrame
    columns: tuple[str, ...]
    values: npt.NDArray[np.float64] = field(repr=False)


ROWS = "rows"
"""Column of `Numbers.tags`: how many rows of the matrix are the series'."""


_Told = tuple[pl.DataFrame, npt.NDArray[np.float64]]


def read_secret(secret: Secret | None) -> str:
    """Return a secret from its environment variable or file; empty if none is named; UserError if it is not there.

    An empty one is none: what it protects would be open, or unsigned, or refused as a wrong password.
    """
    if secret is None:
        return ""
    if secret.env:
        value = os.environ.get(secret.env)
        if value is None:
            raise UserError(f"environment variable {secret.env} is not set", "export it, or use {file: PATH}")
        return _filled(value, f"environment variable {secret.env}")
    path = Path(secret.file or "")
    try:
        return _filled(path.read_text(encoding="utf-8").strip(), f"secret file {path}")
    except UnicodeDecodeError as error:
        raise UserError(f"secret file {path}: byte {error.start} is not UTF-8", "write the secret in ASCII") from None
    except OSError as error:
        raise UserError(f"secret file {path}: {error.strerror}", "make it readable for this user") from error


def _filled(value: str, place: str) -> str:
    if not value.strip():
        raise UserError(f"{place} is empty", "put the secret there, or take its key out of cluster.yaml")
    return value


class Store:
    """One database with its retentions. Use it as a context manager, or close it.

    Args:
        settings: where it is; the version is asked for at the first use that needs it.
        patience: seconds that an answer may take.
        may_write: asked before each write; False refuses it with StoreUnavailableError.
    """

    def __init__(
        self,
        settings: StoreSettings,
        *,
        patience: float = _ANSWER_SECONDS,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings, self._patience, self._may_write = settings, patience, may_write
        self.url = settings.url.rstrip("/")
        self._session = requests.Session()
        # The environment is asked once: requests would go through all of it with every request, which takes longer than
        # the rest of a small one.
        self._session.proxies.update(get_environ_proxies(self.url))
        self._session.trust_env = False
        self._prepared: dict[tuple[str, str], requests.PreparedRequest] = {}
        authorities = _authorities(settings.ca_file) or next(filter(None, map(os.environ.get, _CA_BUNDLES)), True)
        self._session.verify = settings.verify_tls and authorities
        # Packing answers costs the server more than sending them on a network of our own.
        self._session.headers["Accept-Encoding"] = "identity"
        self._token = read_secret(settings.token)
        if settings.username:
            self._session.auth = (settings.username, read_secret(settings.password))
        elif self._token:
            self._session.headers["Authorization"] = f"Token {self._token}"
        self._api: StoreApi | None = None if settings.api is StoreApi.AUTO else settings.api
        self._client: InfluxClient | None = None
        self._gives_csv = True

    def __repr__(self) -> str:
        return f"Store({self.url}, {self.settings.database})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def another(self) -> "Store":
        """Return the same store on connections of its own, for another thread."""
        return Store(self.settings, patience=self._patience, may_write=self._may_write)

    def close(self) -> None:
        """Close all connections."""
        self._session.close()
        if self._client is not None:
            self._client.close()

    # -- what it is --------------------------------------------------------------------------------

    def version(self) -> str:
        """Return the server's version as it says it, such as ``1.6.7`` or ``v2.7.11``; ``unknown`` if it does not."""
        response = self._request("GET", "/ping")
        return str(response.headers.get(_VERSION, "unknown"))

    def api(self) -> StoreApi:
        """Return the write API in use, V1 or V2."""
        if self._api is None:
            is_v1 = self.version().lstrip("v").startswith(("0.", "1.", "unknown"))
            self._api = StoreApi.V1 if is_v1 and not self._token else StoreApi.V2
        return self._api

    # -- retentions --------------------------------------------------------------------------------

    def ensure(self, retentions: tuple[Retention, ...], tell: Callable[[str], None] = lambda _: None) -> None:
        """Create the database and its retentions (or buckets), and set how long each keeps its points.

        Args:
            retentions: all there are to be.
            tell: which of them keeps its points for another time from now on; what is older then is deleted.
        """
        if self.api() is StoreApi.V2 and self._ensure_buckets(retentions, tell):
            return
        database = identifier(self.settings.database)
        existing = self._policies(database)
        if existing is None:
            self._arrange(f"CREATE DATABASE {database}")
            existing = self._policies(database) or {}
        for position, retention in enumerate(retentions):
            policy = f"RETENTION POLICY {identifier(retention.name)} ON {database} DURATION {retention.keep}s"
            default = " DEFAULT" if position == 0 else ""
            if retention.name not in existing:
                self._arrange(f"CREATE {policy} REPLICATION 1{default}")
            elif retention.changes(_go_seconds(existing[retention.name])):
                # Points are not kept for less than a shard lasts: by 0 InfluxDB chooses that anew, as for a new one.
                self._arrange(f"ALTER {policy} SHARD DURATION 0s{default}")
                tell(_kept_anew(retention, _go_seconds(existing[retention.name])))

    def _policies(self, database: str) -> dict[str, str] | None:
        """Return how long each retention keeps its points, in Go's notation; None without a database."""
        try:
            return {str(row[0]): str(row[1]) for row in self._rows(f"SHOW RETENTION POLICIES ON {database}")}
        except LacksDatabaseError as error:
            if _NO_DATABASE in error.message:
                return None
            raise

    def _arrange(self, statement: str) -> None:
        """Run a statement that only an administrator may."""
        try:
            self.execute(statement)
        except StoreError as error:
            if _NOT_ALLOWED not in error.message:
                raise
            raise StoreError(
                f"InfluxDB at {self.url}: user {self.settings.username} may not run: {statement}",
                "let an administrator run it once, as docs/security.md says, or set store.retention to what is there",
            ) from error

    def _ensure_buckets(self, retentions: tuple[Retention, ...], tell: Callable[[str], None]) -> bool:
        """Create the buckets of InfluxDB 2; False where the server has no bucket API (1.8's v2 endpoints)."""
        from store.influx_v2 import ApiRefusal  # noqa: PLC0415 - see there

        for retention in retentions:
            name = self._bucket(retention.name)
            try:
                before = self._influx_client().ensure_bucket(name, retention)
                if before is not None:
                    tell(_kept_anew(retention, before))
            except ApiRefusal as refusal:
                if refusal.status == 404 and _VERSION in refusal.headers:
                    return False
                if refusal.status in (401, 403) and _VERSION in refusal.headers:
                    raise StoreError(
                        f"InfluxDB at {self.url}: this token may not make or see the bucket {name}",
                        "docs/security.md says how an administrator makes the buckets and their tokens",
                    ) from refusal
                raise self._refused(refusal) from refusal
            except HTTPError as error:
                raise self._away(error) from error
        return True

    def _bucket(self, retention: str) -> str:
        return f"{self.settings.database}/{retention}"

    # -- write -------------------------------------------------------------------------------------

    def write(self, lines: bytes, retention: str) -> None:
        """Write line protocol with times in seconds; one try.

        Raises:
            StoreUnavailableError: nothing is known to be written; try again (points are whole totals, so it is safe).
            PartialWriteError: the rest was written.
            StoreError: it will never work like this.
        """
        if not self._may_write():
            raise StoreUnavailableError("nothing is written: the lease is lost, another process may lead")
        if self.api() is StoreApi.V1:
            self._write_v1(lines, retention)
        else:
            self._write_v2(lines, retention)

    def _write_v1(self, lines: bytes, retention: str) -> None:
        params = {"db": self.settings.database, "rp": retention, "precision": "s"}
        headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain; charset=utf-8"}
        # Level 1: line protocol repeats itself so much that more effort buys little.
        data = gzip.compress(lines, 1)
        answer = self._request("POST", f"/write?{urlencode(params)}", data=data, headers=headers)
        if answer.status_code != _WRITTEN:
            raise self._refusal(answer.status_code, answer.text, answer.headers)

    def _write_v2(self, lines: bytes, retention: str) -> None:
        """Write through influxdb-client; where 2.x refuses all for a line that it cannot read, all but such lines."""
        waiting, dropped, tries = [lines.split(b"\n")], 0, 0
        why: PartialWriteError | None = None
        while waiting:
            part = waiting.pop()
            if tries == _MOST_TRIES:
                dropped += len(part)
                continue
            tries += 1
            try:
                self._send_v2(b"\n".join(part), retention)
            except PartialWriteError as error:
                why = why or error
                if not _is_all_refused(error):
                    dropped += error.dropped
                elif len(part) == 1:
                    dropped += 1
                else:
                    half = len(part) // 2
                    waiting += [part[half:], part[:half]]
        if why is not None:
            raise PartialWriteError(why.message, dropped=dropped, too_old=why.too_old)

    def _send_v2(self, lines: bytes, retention: str) -> None:
        from store.influx_v2 import ApiRefusal  # noqa: PLC0415 - see there

        try:
            status = self._influx_client().write(self._bucket(retention), lines)
        except ApiRefusal as refusal:
            raise self._refused(refusal) from refusal
        except UnicodeDecodeError as error:
            raise self._babbles(error.object) from error
        except (HTTPError, OSError) as error:
            raise self._away(error) from error
        if status != _WRITTEN:
            raise self._refusal(status, "", {})

    def _influx_client(self) -> "InfluxClient":
        from store.influx_v2 import InfluxClient  # noqa: PLC0415 - see there

        if self._client is None:
            self._client = InfluxClient(
                self.url,
                token=self._token,
                org=self.settings.org,
                timeout=(_CONNECT_SECONDS, self._patience),
                verify_tls=self.settings.verify_tls,
                ca_file=self.settings.ca_file,
            )
        return self._client

    # -- ask ---------------------------------------------------------------------------------------

    def execute(self, influxql: str) -> None:
        """Run a statement whose answer does not matter."""
        self._answer(influxql, database=None)

    def query(self, influxql: str) -> list[Series]:
        """Run a SELECT or SHOW statement; its series, in order.

        Raises:
            PartialAnswerError: the server left out rows.
            StoreError: it is away, or refuses.
        """
        results = self._asked(f"{influxql};{_AFTER}", self.settings.database).get("results", [])
        if len(results) < 2 or "error" in results[0]:
            self._refuse_short(influxql, results)
        return _series_of(results[0])

    def rows(self, asked: Select) -> Iterator[tuple[Any, ...]]:
        """Ask, and yield each row: its time in epoch seconds, the tags asked for (empty: none), the columns."""
        for series in self.query(asked.text()):
            tags = [series.tags.get(tag, "") for tag in asked.tags]
            for moment, *values in series.values:
                yield int(moment) // 1000, *tags, *values

    def answers(self, statements: Sequence[str]) -> "list[list[Series] | StoreError]":
        """Run SELECT statements in one request; for each in its order the series, or what InfluxDB says against it.

        Raises:
            StoreError: nothing was answered at all.
        """
        if not statements:
            return []
        results = self._asked(";".join([*statements, _AFTER]), self.settings.database).get("results", [])
        # Of what was run last nobody knows whether it is whole.
        whole = takewhile(lambda result: "error" not in result, results[:-1])
        found: list[list[Series] | StoreError] = [_series_of(result) for result in whole]
        if len(found) == len(statements):
            return found
        first = len(found)
        try:
            found.append(self.query(statements[first]))
        except StoreUnavailableError:
            raise
        except StoreError as error:
            found.append(error)
        return [*found, *self.answers(statements[first + 1 :])]

    def frame(self, influxql: str) -> pl.DataFrame:
        """Run a SELECT; one flat frame: tags (String), ``time`` (epoch ms), the columns asked for; no rows: empty."""
        # Thousands of series have few shapes: one frame a shape, not a series.
        shapes: dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[Any]]] = {}
        for series in self.query(influxql):
            rows = shapes.setdefault((tuple(series.tags), tuple(series.columns)), [])
            tags = list(series.tags.values())
            rows.extend(tags + row for row in series.values)
        frames = [
            pl.DataFrame(rows, schema=[*tags, *columns], orient="row", infer_schema_length=None)
            for (tags, columns), rows in shapes.items()
        ]
        return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()

    def numbers(self, asked: Select) -> Numbers:
        """Ask for numbers (whole ones exact up to 2^53); their columns are ``time`` and those of the question."""
        is_mixed = _has_few_rows(asked)
        in_csv = self._gives_csv and (is_mixed or len(asked.tags) <= _FEW_TAGS)
        told = (self._told_mixed(asked) if is_mixed else self._told_in_csv(asked)) if in_csv else None
        if told is None:
            told = self._told_in_json(asked)
            # Not every server says what databases there are to everybody who may read one.
            self._gives_csv = self._gives_csv and not in_csv
        tags, flat = told
        return Numbers(tags, ("time", *(column.name for column in asked.columns)), flat)

    def _told_in_csv(self, asked: Select) -> _Told | None:
        """Return the series' tags and rows; None where InfluxDB does not say that they are all.

        Large answers take a third less memory than in JSON, and less of everybody's time.
        """
        columns = ["time", *(column.name for column in asked.columns)]
        values = [pl.DataFrame(schema=dict.fromkeys(columns, pl.Float64))]
        runs = [pl.DataFrame(schema={"len": pl.UInt32, "value": pl.String})]
        try:
            for found in self._tables(asked, columns):
                values.append(found.select(columns))
                runs.append(found.select(pl.col(_TAGS).fill_null("").rle()).unnest(_TAGS))
        except (pl.exceptions.PolarsError, EOFError):
            return None
        # A series may go on in the next part.
        parts = pl.concat(runs).group_by(pl.col("value").rle_id().alias("id"), maintain_order=True)
        series = parts.agg(pl.col("value").first(), pl.col("len").cast(pl.Int64).sum())
        named = [_tags_of(text) for text in series.get_column("value")]
        tags = {tag: pl.Series([one.get(tag, "") for one in named], dtype=pl.String) for tag in asked.tags}
        return pl.DataFrame(tags | {ROWS: series.get_column("len")}), pl.concat(values).to_numpy()

    def _told_mixed(self, asked: Select) -> _Told | None:
        """Return the same, asked for by time with the tags in each row, and put in order here."""
        columns = ["time", *(column.name for column in asked.columns)]
        by_time = replace(asked, tags=()).take(*map(labelled, asked.tags))
        try:
            found = pl.concat([pl.DataFrame(schema=_kinds(columns, asked.tags)), *self._tables(by_time, columns)])
        except (pl.exceptions.PolarsError, EOFError):
            return None
        found = found.with_columns(pl.col(asked.tags).fill_null("")).sort(asked.tags, maintain_order=True)
        series = found.group_by(asked.tags, maintain_order=True).agg(pl.len().cast(pl.Int64).alias(ROWS))
        return series, found.select(columns).to_numpy()

    def _tables(self, asked: Select, numbers: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield parts of an answer; PolarsError or EOFError where it is not what was asked for, or not all.

        CSV leaves errors out, but no statement runs after one.
        """
        texts = [column.name for column in asked.columns if column.name not in numbers]
        kinds = {"name": pl.String, _TAGS: pl.String} | _kinds(numbers, texts)
        wanted = list(range(2 if texts else 1, len(kinds)))
        for number, rows in enumerate(self._rows_in_csv(f"{asked.text()};{_AFTER}")):
            yield pl.read_csv(rows, has_header=number == 0, schema=kinds, columns=wanted)

    def _rows_in_csv(self, influxql: str) -> Iterator[bytes]:
        """Yield what a statement before `_AFTER` answers, in parts of whole rows; EOFError where that is not all."""
        form = self._form(influxql, self.settings.database)
        body, end = b"", -1
        with self._request("POST", "/query", data=form, headers={"Accept": "application/csv"}, stream=True) as answer:
            while end < 0:
                try:
                    more = answer.raw.read(_PART_BYTES, decode_content=True)
                except HTTPError as error:
                    raise self._away(error) from error
                if not more:
                    raise EOFError
                body += more
                end = body.find(_AFTER_HEAD)
                # An empty line stands between two answers. The head of the second may have come in part.
                cut = max(end - 1, 0) if end >= 0 else body.rfind(b"\n", 0, -len(_AFTER_HEAD)) + 1
                if cut:
                    yield body[:cut]
                body = body[cut:]

    def _told_in_json(self, asked: Select) -> _Told:
        """Return the series' tags and rows, or raise what InfluxDB says against it."""
        influxql, tags, width = asked.text(), asked.tags, 1 + len(asked.columns)
        form = self._form(f"{influxql};{_AFTER}", self.settings.database)
        body = self._request("POST", "/query", data=form).content
        first, second, _ = body.rpartition(_SECOND)
        if not second:
            self._refuse_short(influxql, self._read(body).get("results", []))
        shape = {"results": pl.List(_result(tags)), "error": pl.String()}
        # Read by columns.
        try:
            answer = pl.read_json(first + b"]}", schema=shape)
        except pl.exceptions.PolarsError as unreadable:
            raise self._babbles(body) from unreadable
        results = answer.select(pl.col("results").explode()).unnest("results")
        for error in [*answer.get_column("error"), *results.get_column("error")]:
            if error is not None:
                raise self._against(error, influxql)
        series = results.select(pl.col("series").explode()).drop_nulls().unnest("series")
        flat = series.select(pl.col("values").explode().explode()).to_series().to_numpy()
        counted = series.select("tags", pl.col("values").list.len().alias(ROWS))
        named = counted.unnest("tags") if tags else counted.drop("tags")
        return named, flat.reshape(-1, width)

    def _refuse_short(self, influxql: str, results: list[dict[str, Any]]) -> NoReturn:
        """Raise why a statement's answer lacks that of `_AFTER`, which was asked after it."""
        if results and "error" not in results[0]:
            raise PartialAnswerError(
                f"{self.url}: max-row-limit left out rows of an answer",
                f"set it to 0 in the section [http] of influxdb.conf; {_shown(influxql)}",
            )
        # InfluxDB says why a statement fails only where none comes after it.
        self._answer(influxql, self.settings.database)
        raise StoreUnavailableError(f"{self.url}: a query failed that did not when it was asked again")

    def _rows(self, influxql: str) -> list[list[Any]]:
        return [row for result in self._answer(influxql, None) for s in result.get("series", []) for row in s["values"]]

    def _answer(self, influxql: str, database: str | None) -> list[dict[str, Any]]:
        body = self._asked(influxql, database)
        for result in [body, *body.get("results", [])]:
            if "error" in result:
                raise self._against(result["error"], influxql)
        return list(body.get("results", []))

    def _against(self, words: str, influxql: str) -> StoreError:
        """Return the error of what InfluxDB says against a statement."""
        if _LACKS.search(words):
            return LacksDatabaseError(f"InfluxDB at {self.url}: {words}", _MAKER)
        kind = PartialAnswerError if _TOO_MUCH.search(words) else StoreError
        return kind(f"{self.url}: {words}", _shown(influxql))

    def _asked(self, influxql: str, database: str | None) -> dict[str, Any]:
        return self._read(self._request("POST", "/query", data=self._form(influxql, database)).content)

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise self._babbles(body) from error
        if not isinstance(answer, dict):
            raise self._babbles(body)
        return answer

    @staticmethod
    def _form(influxql: str, database: str | None) -> dict[str, str]:
        return {"q": influxql, "epoch": "ms"} | ({"db": database} if database else {})

    # -- transport ---------------------------------------------------------------------------------

    def _request(
        self,
        method: str,
        path: str,
        *,
        data: Mapping[str, str] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> requests.Response:
        try:
            request = self._addressed(method, path)
            request.headers.update(headers or {})
            request.prepare_body(data, None)
            # A redirect is followed by GET, without the lines or the question: whatever answers that has none of them.
            response = self._session.send(
                request,
                timeout=(_CONNECT_SECONDS, self._patience),
                allow_redirects=False,
                stream=stream,
                proxies=self._session.proxies,
            )
            text = response.text if response.status_code >= 300 else ""
        except requests.RequestException as error:
            raise self._away(error) from error
        if response.status_code >= 300:
            raise self._refusal(response.status_code, text, response.headers)
        return response

    def _addressed(self, method: str, path: str) -> requests.PreparedRequest:
        """Return a request without a body: to merge the session's settings takes a third of the time of a small one."""
        if (method, path) not in self._prepared:
            request = requests.Request(method, f"{self.url}{path}")
            self._prepared[method, path] = self._session.prepare_request(request)
        return self._prepared[method, path].copy()

    def _away(self, error: Exception) -> StoreError:
        if distrust := _distrust(error):
            return StoreError(f"InfluxDB at {self.url}: {distrust[0]}", distrust[1])
        late = isinstance(error, requests.ReadTimeout | ReadTimeoutError)
        how = f"does not answer within {self._patience:.0f} s" if late else "does not answer"
        if "Failed to resolve" in str(error):
            how = "does not answer: its name does not resolve"
        return StoreUnavailableError(f"InfluxDB at {self.url} {how}", "start it, or set store.url in cluster.yaml")

    def _babbles(self, body: bytes) -> StoreUnavailableError:
        """Return the error of an answer that is none of InfluxDB's, such as a proxy's page; it may pass."""
        text = " ".join(body[:80].decode("utf-8", "replace").split())
        return StoreUnavailableError(
            f"{self.url} answers what InfluxDB does not say: {text}", "set store.url to InfluxDB's own address"
        )

    def _refused(self, refusal: "ApiRefusal") -> StoreError:
        # Without a status is how influxdb-client tells of TLS that failed.
        return self._refusal(refusal.status, refusal.text, refusal.headers) if refusal.status else self._away(refusal)

    def _refusal(self, status: int, text: str, headers: Mapping[str, str]) -> StoreError:
        words = " ".join(text.split())[:300]
        if status < 400:
            # A login page, or one of a gateway: the lines are nowhere.
            told = f": {words}" if words else ""
            return StoreUnavailableError(
                f"{self.url} answers {status}, which InfluxDB does not{told}", "set store.url to InfluxDB's own address"
            )
        if _LACKS.search(words):
            # 1.x answers 404 without a database, 500 without a retention policy.
            return LacksDatabaseError(f"InfluxDB at {self.url} answers {status}: {words}", _MAKER)
        if status in (413, 429) or status >= 500:
            # 1.x answers 500 for a timeout of its own or a full disk, 503 for an overload: all pass. So does a limit.
            hint = "make room on its disk, then restart it: it does not recover by itself" if _FULL in words else ""
            hint = _LARGER if status == 413 else hint
            return StoreUnavailableError(
                f"InfluxDB at {self.url} answers {status}: {words}",
                hint,
                retry_after=seconds_until(headers.get("Retry-After")),
            )
        if status in (400, 422) and ("partial write" in words or _UNREADABLE in words):
            dropped = _DROPPED.search(words)
            too_old = "beyond retention policy" in words or "retention" in words
            # Of points that it cannot read it says which, a line each, but counts them as 0.
            count = max(int(dropped.group(1)) if dropped else 1, text.count(_UNREADABLE))
            said = f"InfluxDB at {self.url} refuses points: {words}"
            return PartialWriteError(said, dropped=count, too_old=too_old)
        if _VERSION not in headers and _HTTPS_ONLY not in words:
            # An ingress whose backend restarts, or a gateway: InfluxDB itself never saw the request.
            return StoreUnavailableError(
                f"{self.url} answers {status} without the header {_VERSION}, so it is not InfluxDB: {words}",
                "set store.url to InfluxDB's own address, or have the proxy before it keep that header",
            )
        said, hint = f"answers {status}", "set store.url to https://" if _HTTPS_ONLY in words else ""
        if status in (401, 403):
            said, hint = f"refuses access ({status})", "check store.token, or store.username and store.password"
        return StoreError(f"InfluxDB at {self.url} {said}: {words}", hint)


def _authorities(path: str | None) -> str | None:
    """Return the path of a file with certificates; UserError if it cannot be read."""
    if path is None:
        return None
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise UserError(f"store.ca_file: {path}: holds no certificate", "expected certificates in PEM") from None
    except OSError as error:
        raise UserError(f"store.ca_file: {path}: {error.strerror}", "make it readable for this user") from None
    return path


def _distrust(error: BaseException) -> tuple[str, str] | None:
    """Return why the server is not trusted, and what to do; None if something else is the matter."""
    text = str(error)
    if verdict := re.search(r"certificate verify failed: ([^()\[\]]+)", text):
        why = verdict[1].strip().rstrip(".")
        if "match" in why:
            return f"its certificate is not trusted: {why}", "set store.url to the name in the certificate"
        if "expired" in why or "not yet valid" in why:
            return f"its certificate is not trusted: {why}", "renew it, and see that both clocks are right"
        return f"its certificate is not trusted: {why}", "set store.ca_file to the certificate of its authority"
    if re.search(r"WRONG_VERSION_NUMBER|wrong version number|HTTP_REQUEST", text):
        return "it does not speak TLS", "set store.url to http://, or enable https there"
    return None


def _kept_anew(retention: Retention, before: int) -> str:
    days = (f"for {seconds / 86_400:g} days" if seconds else "for ever" for seconds in (before, retention.keep))
    return f"retention {retention.name}: points were kept {next(days)}, and are {next(days)} from now on"


def _shown(influxql: str) -> str:
    """Return the beginning of a query, in one line."""
    return f"the query was: {' '.join(influxql.split())[:300]}"


def _is_all_refused(error: PartialWriteError) -> bool:
    """Whether nothing of the request was written: only then is "partial write" not among the server's words."""
    return "partial write" not in error.message


def seconds_until(retry_after: str | None) -> float:
    """Read a Retry-After header: seconds, or a date; 0 where there is none that makes sense."""
    text = (retry_after or "").strip()
    if text.isdecimal() and text.isascii():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(moment.timestamp() - time.time(), 0.0)


def _has_few_rows(asked: Select) -> bool:
    """Whether rows are asked for as stored, few of each series: by time, InfluxDB hands them out in half the time.

    From 30 a series on it gains nothing: to sort them takes it as long.
    """
    start, stop = asked.span or (None, None)
    return (
        bool(asked.tags)
        and isinstance(asked.source, Measurement)
        and all(column.function == BESIDE for column in asked.columns)
        and start is not None
        and stop is not None
        and stop - start <= _SHORT.get(asked.retention, 0)
    )


def _kinds(numbers: Sequence[str], texts: Sequence[str]) -> dict[str, type[pl.DataType]]:
    return dict.fromkeys(numbers, pl.Float64) | dict.fromkeys(texts, pl.String)


def _tags_of(text: str) -> dict[str, str]:
    """Read the tags of a series as they stand in CSV."""
    parts = (part.partition("=") for part in _COMMA.split(text))
    return {tag: _ESCAPED.sub(r"\1", value) for tag, _, value in parts}


def _result(tags: tuple[str, ...]) -> pl.Struct:
    """Return the shape of a statement's result in an InfluxQL answer."""
    series = pl.Struct({"tags": pl.Struct(dict.fromkeys(tags, pl.String)), "values": pl.List(pl.List(pl.Float64))})
    return pl.Struct({"series": pl.List(series), "error": pl.String})


def _series_of(result: dict[str, Any]) -> list[Series]:
    return [
        Series(
            series.get("name", ""),
            {key: str(value) for key, value in series.get("tags", {}).items()},
            list(series["columns"]),
            series.get("values", []),
        )
        for series in result.get("series", [])
    ]


def _go_seconds(duration: str) -> int:
    """Read Go's notation of a duration, such as ``168h0m0s``, as SHOW RETENTION POLICIES prints it."""
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))
