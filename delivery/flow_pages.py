"""The flow archive for browsers: the questions of ``clusterflow flows``, in the same words, as a page with a link."""

import io
import json
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from app.errors import UserError
from archive import schema
from archive.aside import ask_aside
from archive.query import Answer, Filter, archive_folder
from cluster.model import Cluster
from cluster.options import moment_of
from cluster.sections.delivery import FLOWS_PATH
from ingest.metrics import Document
from operations.questions.flow_questions import DEFAULT_BY, columns_of, completed, document, lacking
from reporting.flows_page import FORMATS, MOST_SAVED, Asked, answered, html

_FIELDS = {
    "src": "src", "dst": "dst", "node": "node", "address": "address", "prefix": "prefix", "proto": "protocol",
    "group": "group", "exporter": "exporter", "interface": "interface",
}  # fmt: skip
_OTHERS = ("port", "job", "around", "from", "to", "by", "order", "top", "format")
_MOST_ROWS = 1000
_MOST_PORT = 65_535
_MOST_TEXTS = 200
_SECONDS, _MILLISECONDS = 10, 13
"""Digits of epoch seconds since 2001, and of milliseconds, as Grafana's links have them."""


class FlowPages:
    """Answers questions, one at a time, each in a process of its own.

    Args:
        cluster: whose archive it is.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()

    def page(self, asked: str) -> Document:
        """Return the form, and the answer where the query is a question; status 400 says what is wrong with it.

        Args:
            asked: what follows the path: a query, with the words of ``clusterflow flows``.

        Raises:
            UserError: another path.
            StoreError: the store is away, which knows the alerts.
        """
        path, _, query = asked.partition("?")
        if path not in ("", "/"):
            raise UserError(f"{FLOWS_PATH}{path}: no such page", f"try {FLOWS_PATH}")
        texts: dict[str, str] = {}
        try:
            texts = _texts(query, self._cluster)
            if not texts:
                return _page(html(self._cluster, texts))
            return self._answer(texts)
        except UserError as error:
            # The words are the command's.
            trouble = " ".join(error.lines()).replace("--", "")
            return _page(html(self._cluster, texts, trouble), 400)

    def _answer(self, texts: Mapping[str, str]) -> Document:
        cluster = self._cluster
        file = texts.get("format", "")
        if file and file not in FORMATS:
            raise UserError(f"format {file}: expected {', '.join(FORMATS)}")
        asked = self._asked(texts)
        with self._lock:
            answer = ask_aside(
                archive_folder(cluster),
                asked.question,
                asked.by,
                order=texts.get("order", schema.BYTES),
                most=MOST_SAVED if file else _whole("top", texts.get("top", "20"), 1, _MOST_ROWS),
                also=None if file else asked.further(),
                settings=cluster.archive,
            )
        gaps = lacking(cluster, answer)
        if file:
            return _file(file, answer, gaps, asked.question)
        return _page(html(cluster, texts, "", *answered(cluster, asked, answer, gaps)))

    def _asked(self, texts: Mapping[str, str]) -> Asked:
        zone = self._cluster.site.time_zone
        times = [moment_of(texts[word], zone, word) if word in texts else None for word in ("from", "to")]
        fields: dict[str, Any] = {field: _several(texts.get(word, "")) for word, field in _FIELDS.items()}
        ports = tuple(_whole("port", port, 0, _MOST_PORT) for port in _several(texts.get("port", "")))
        question = completed(
            self._cluster,
            Filter(0, 0, port=ports, **fields),
            start=times[0], stop=times[1], around=texts.get("around"), job=texts.get("job"),
        )  # fmt: skip
        kept = {word: text for word, text in texts.items() if word not in ("around", "job", "format")}
        # What an alert and a job add stands in the link, which then says the same for ever.
        kept |= {
            word: ",".join(getattr(question, field)) for word, field in _FIELDS.items() if getattr(question, field)
        }
        return Asked(kept, question, columns_of(texts.get("by", DEFAULT_BY)), zone)


def _texts(query: str, cluster: Cluster) -> dict[str, str]:
    try:
        found = parse_qs(query, max_num_fields=_MOST_TEXTS)
    except ValueError as error:
        raise UserError(f"the question: {error}", f"at most {_MOST_TEXTS} values") from error
    texts = {word: ",".join(values).strip() for word, values in found.items()}
    for word in texts:
        if word not in _FIELDS and word not in _OTHERS:
            raise UserError(f"{word[:80]}: no such word", f"there are {', '.join((*_FIELDS, *_OTHERS))}")
    for word in ("from", "to"):
        texts[word] = _legible(texts.get(word, ""), cluster)
    return {word: text for word, text in texts.items() if text}


def _legible(text: str, cluster: Cluster) -> str:
    """Return epoch seconds or milliseconds as a time of the site's zone; every other text as it is."""
    if not (text.isdecimal() and text.isascii() and len(text) in (_SECONDS, _MILLISECONDS)):
        return text
    seconds = int(text) // (1000 if len(text) == _MILLISECONDS else 1)
    return datetime.fromtimestamp(seconds, cluster.site.time_zone).isoformat()


def _several(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole(word: str, text: str, least: int, most: int) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 9 and least <= int(text) <= most):
        raise UserError(f"{word} {text[:80]}: expected a whole number from {least:,} to {most:,}")
    return int(text)


def _page(text: str, status: int = 200) -> Document:
    return Document(text.encode("utf-8", "replace"), status=status)


def _file(form: str, answer: Answer, gaps: list[str], question: Filter) -> Document:
    name = f"flows.{form}"
    if form == "json":
        return Document(
            (json.dumps(document(answer, gaps, question), indent=1) + "\n").encode(), "application/json", name=name
        )
    if form == "csv":
        return Document(answer.frame.write_csv().encode(), "text/csv; charset=utf-8", name=name)
    file = io.BytesIO()
    answer.frame.write_parquet(file, compression="zstd")
    return Document(file.getvalue(), "application/vnd.apache.parquet", name=name)
