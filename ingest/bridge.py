"""The bridge: spool files in, points out, with everything that keeps the totals true across faults.

The order of each flush is what makes it exact: first the checkpoint (position and windows of one moment), then the
points. Whatever dies in between, a restart finds a checkpoint whose points it writes again. Spool files are released
only when a checkpoint holds what was in them.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from app.errors import StoreError, UserError, remedy
from app.log import Log
from archive.samples import Samples
from archive.writer import Archive
from cluster.model import Cluster
from cluster.reload import Reload
from ingest.checkpoint import Checkpoint
from ingest.cloud.files import CloudReader
from ingest.collect import trouble_file
from ingest.collect.template_file import TemplateFile
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters, as_dead_letters, bury
from ingest.flows.enriching import Enrichment
from ingest.flows.known_rates import KnownRates, tell_changes
from ingest.flows.normalise import Clock
from ingest.flows.two_way import with_replies
from ingest.pace import Pace
from ingest.read.counter_samples import read_counter_samples
from ingest.read.numbered import Habits
from ingest.read.readers import read_chunk
from ingest.read.records import Parsed
from ingest.read.source import Position, Source
from ingest.readings import exporter_readings, listed_since, resident_bytes, unread_of
from ingest.renewal import Renewal
from ingest.rollup import Rollup, horizon
from ingest.writer import StoppedError, Writer
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, newest
from store.points import WINDOW
from store.schema import RAW, Measurement, Stage

_CHUNK_BYTES = 16 << 20
_COUNTER_BYTES = 4 << 20
_CLOUD_PAIRS = "cloud-pairs"
_MERGE_ROWS = 500_000
_IDLE_SECONDS = 0.2
_ROLLUP_SECONDS = 60.0
_HEALTHY_SECONDS = 60.0
_DISK_SECONDS = 1.0
_STEP_SECONDS = 5.0
"""A wall clock that moved so far against the monotonic one was set."""


Progress = Callable[[int], None]
"""Called with the bytes of each chunk read."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    records: int
    points: int
    dead_letters: int
    seconds: float
    is_whole: bool = True
    """Whether a source that has an end was read to it."""
    unknown_rates: Mapping[str, int] = field(default_factory=dict)
    """Records by exporter that samples, and told no rate: counted as they stand."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A chunk that was read: its records, its bytes, of which file it is, and what was read of the source with it."""

    parsed: Parsed
    size: int
    source: str
    position: Position


class Bridge:
    """One process that follows one source.

    Args:
        cluster: what is known about the cluster.
        store: where points go.
        source: where records come from.
        counters_source: where samples of interface counters come from, if there are any.
        clock: LIVE follows the source until stopped; BACKFILL reads it once to its end.
        state: folder of the checkpoint.
        dead_letter: where bad records go.
        stop: set it to end in order.
        log: where it tells what it does.
        counters: shared with the metrics endpoint.
        reload: asked for another configuration while following.
        archive: where single records are kept, if they are.
        samples: where single packet samples between training nodes are kept, if they are.
        cloud: reads the chunks, where they are of a cloud's flow logs.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        source: Source,
        *,
        clock: Clock,
        state: Path,
        dead_letter: DeadLetters,
        stop: threading.Event,
        log: Log,
        counters: Counters,
        counters_source: Source | None = None,
        reload: Reload | None = None,
        archive: Archive | None = None,
        samples: Samples | None = None,
        cloud: CloudReader | None = None,
    ) -> None:
        self._renewal = None if reload is None else Renewal(reload, log)
        self._cluster = cluster
        self._settings = cluster.bridge
        self._store, self._source = store, source
        self._counters_source = counters_source
        self._clock = clock
        self._dead_letter = dead_letter
        self._stop = stop
        self._log = log
        self._counters = counters
        self._enrichment = Enrichment(cluster, log)
        self._archive, self._samples = archive, samples
        self._cloud = cloud
        self._engine = self._engine_of(cluster, self._enrichment)
        self._checkpoint = Checkpoint(state)
        self._writer = Writer(
            store,
            cluster.retentions(),
            shard=self._settings.shard,
            counters=counters,
            stop=stop,
            log=log,
            # A stream's last flush is written though it is stopped; a backfill will be run again as a whole.
            finishes=clock is Clock.LIVE,
        )
        self._rollup = Rollup(store, self._writer, cluster.retentions(), self._settings.shard)
        self._started = time.time()
        self._listed: dict[str, float] = {}
        self._alive = time.monotonic()
        self._clock_ahead = time.time() - time.monotonic()
        self._trouble = ""
        self._drained = 0.0
        self._before = self._done()
        self._position: Position = {}
        self._counters_position: Position = {}
        self._saved_positions: tuple[Position, Position] = {}, {}
        # One thread reads the next chunk and one writes the last flush while this one computes: the work is in the
        # kernel, in C, zlib and the socket, which leave the interpreter to the others.
        self._parser = ThreadPoolExecutor(1, "parse")
        # One each: they look at it from different threads.
        self._habits = Habits(TemplateFile(Path(source.place)))
        self._templates = TemplateFile(Path(source.place))
        self._spool = Path(source.place)
        self._befell: set[str] = set()
        self._rates = KnownRates(self._templates)
        self._sender = ThreadPoolExecutor(1, "write")
        self._ahead: Future[_Read | None] | None = None
        self._sending: Future[None] | None = None
        self._pace = Pace(self._settings.flush)
        self._let_go: list[tuple[str, pl.DataFrame]] = []
        self._source_counts: dict[str, int] = {}
        self._is_restored = False

    def _engine_of(self, cluster: Cluster, enrichment: Enrichment) -> Engine:
        archived = self._archive.take if self._archive is not None else None
        sampled = self._samples.take if self._samples is not None else None
        return Engine(
            cluster, self._clock, self._counters, labels=enrichment.labels, archived=archived, sampled=sampled
        )

    def health(self) -> str:
        """Return why the bridge is not well; empty if it is."""
        # A long rollup is no standstill as long as the store answers.
        silent = time.monotonic() - max(self._alive, self._writer.answered)
        why = self._trouble or "is InfluxDB there?"
        return f"no progress for {silent:.0f} s: {why}" if silent > _HEALTHY_SECONDS else ""

    def run(self, progress: Progress = lambda _: None) -> Summary:
        """Work until the source ends (BACKFILL) or `stop` is set (LIVE)."""
        begun = time.monotonic()
        is_whole = True
        try:
            self._restore()
            self._is_restored = True
            if self._clock is Clock.LIVE:
                self._follow(progress)
            else:
                self._drain(progress)
        except StoppedError as error:
            is_whole = self._clock is Clock.LIVE
            # Before that nothing was read: what memory holds is less than what the checkpoint has.
            if self._is_restored and is_whole and not self._source.is_resumable:
                self._keep_pending()
            self._log.warning("stopped", why=error.message)
        except BaseException:
            # A write that waits for the store would keep the process from ending.
            self._stop.set()
            if self._is_restored and self._clock is Clock.LIVE and not self._source.is_resumable:
                self._keep_what_can_be()
            raise
        finally:
            self._parser.shutdown()
            self._sender.shutdown()
            if self._renewal is not None:
                self._renewal.drop(self._enrichment)
            self._enrichment.close()
            if self._archive is not None:
                self._archive.close()
            self._checkpoint.close()
        records, points, dead_letters = (
            int(now - before) for now, before in zip(self._done(), self._before, strict=True)
        )
        return Summary(records, points, dead_letters, time.monotonic() - begun, is_whole, self._engine.unknown_rates)

    def _done(self) -> tuple[float, float, float]:
        """Return records read, points written and dead letters since the checkpoint was first made."""
        total = self._counters.total
        return total(Stage.READ, "records"), total(Stage.WRITE, "points"), total(Stage.READ, "dead_letters")

    # -- the two ways to run -----------------------------------------------------------------------

    def _drain(self, progress: Progress) -> None:
        while not self._stop.is_set():
            got = self._step(progress) or self._step_counters()
            if self._engine.pending_rows >= _MERGE_ROWS:
                self._flush()
            if not got:
                if self._source.is_finished or self._source.is_resumable:
                    break
                self._stop.wait(_IDLE_SECONDS)
        else:
            # What waits is left: a run to the end would merge it with more, and might give names to others.
            raise StoppedError("stopped before everything was read")
        self._flush()
        self._finish_writing()
        self._rollup.run()
        self._report()
        self._save()

    def _follow(self, progress: Progress) -> None:
        reported = rolled = time.monotonic()
        while not self._stop.is_set():
            self._mind_clock()
            self._renew()
            self._enrichment.look()
            looked = time.time()
            got = self._step(progress)
            self._step_counters()
            if not got:
                self._drained = looked
            now = self._alive = time.monotonic()
            if self._pace.is_due(now) or self._engine.pending_rows >= _MERGE_ROWS:
                with self._pace.preparing():
                    self._flush()
            # A backlog first: its records are more urgent than readings of it.
            if now - reported >= self._settings.window and (not got or now - reported >= 3 * self._settings.window):
                self._finish_writing()
                self._report()
                reported = now
            if now - rolled >= _ROLLUP_SECONDS:
                self._finish_writing()
                self._roll_up()
                rolled = time.monotonic()
            if not got:
                if self._source.is_finished:
                    break
                self._stop.wait(_IDLE_SECONDS)
        self._flush()
        self._finish_writing()
        # What was counted since the last report: nobody might start us again for days.
        self._report()
        self._roll_up()
        self._save()

    def _mind_clock(self) -> None:
        """Forget what was measured by a wall clock that was set since."""
        if self._engine.turn_back(time.time()):
            self._log.sparse("clock_turned_back", what="the clock was ahead; windows follow the present again")
        ahead = time.time() - time.monotonic()
        step, self._clock_ahead = ahead - self._clock_ahead, ahead
        if abs(step) < _STEP_SECONDS:
            return
        self._log.warning("clock_stepped", seconds=step)
        self._counters.add(Stage.BRIDGE, "clock_steps")
        now = time.time()
        # Nobody is silent for an hour because the clock jumped, nor heard of in the future because it went back.
        self._started = now
        self._listed.clear()
        self._drained = min(self._drained, now)
        for reading in self._engine.exporters.values():
            reading.last_seen = min(reading.last_seen, now)

    def _renew(self) -> None:
        """Take up another configuration where there is one, once its lists have been read beside the flows."""
        coming = self._renewal.look(self._cluster, self._enrichment) if self._renewal is not None else None
        if self._renewal is not None and coming is not None:
            self._take_up(self._renewal.reload, *coming)
            self._renewal.drop(self._enrichment)

    def _take_up(self, reload: Reload, cluster: Cluster, enrichment: Enrichment) -> None:
        """Go on by another configuration.

        What was read so far is counted by the old one. Windows that are open keep that under its old names, and what
        comes from now on is added under the new ones, as after a restart: totals stay exact.
        """
        self._flush()
        self._finish_writing()
        with reload.refusing():
            engine = self._engine_of(cluster, enrichment)
            if self._archive is not None:
                self._archive.configure(cluster.archive)
            if self._samples is not None:
                self._samples.configure(cluster.archive)
            engine.load(*self._engine.dump())
            reload.taken_up(self._cluster, cluster)
            self._listed |= listed_since(self._cluster, cluster, time.time())
            before, self._enrichment = self._enrichment, enrichment
            self._cluster, self._settings, self._engine = cluster, cluster.bridge, engine
            self._pace = Pace(self._settings.flush)
            if enrichment is not before:
                before.close()
            self._counters.add(Stage.BRIDGE, "reloads")

    def _roll_up(self) -> None:
        """Recompute rollups; a query that the store refuses is reported and tried again, it does not end the stream."""
        try:
            self._rollup.run()
        except StoreError as error:
            self._counters.add(Stage.WRITE, "rollups_failed")
            self._log.sparse("rollup_failed", why=" ".join(error.lines()))

    def _step(self, progress: Progress) -> bool:
        """Read one chunk into the engine; False if there is none now."""
        ahead, self._ahead = self._ahead, None
        # Whoever found nothing looked before we were asked.
        read = (ahead.result() if ahead is not None else None) or self._parser.submit(self._read).result()
        if read is None:
            return False
        if self._source.is_resumable:
            # What is read ahead when we are stopped is read again; a stream cannot be.
            self._ahead = self._parser.submit(self._read)
        parsed, source = read.parsed, read.source
        now = time.time()
        self._counters.add(Stage.READ, "bytes", read.size)
        self._counters.add(Stage.READ, "records", parsed.frame.height)
        if parsed.repeated:
            self._counters.add(Stage.READ, "repeated_records", parsed.repeated)
        self._bury(parsed.dead, source)
        if parsed.frame.height:
            frame, changes = self._rates.take(parsed, source)
            tell_changes(
                changes,
                self._counters,
                self._log,
                {str(exporter.address): exporter.name for exporter in self._cluster.exporters},
            )
            frame = with_replies(frame, self._templates.two_way())
            refused = self._engine.take(
                frame, now, is_numbered=parsed.is_numbered, exporters=parsed.exporters, ends=parsed.ends
            )
            self._bury(as_dead_letters(refused), source)
        self._engine.take_denied(parsed.denied, now)
        self._engine.take_gaps(parsed.gaps)
        self._position = read.position
        progress(read.size)
        return True

    def _step_counters(self) -> bool:
        """Read a chunk of samples of interface counters; False if there is none now."""
        chunk = self._counters_source.next_chunk(_COUNTER_BYTES) if self._counters_source else None
        if chunk is None:
            return False
        parsed = read_counter_samples(chunk.raw, chunk.fmt.time_zone)
        self._bury(parsed.dead, chunk.source)
        self._engine.take_counters(parsed.frame, time.time())
        self._counters_position = chunk.position
        return True

    def _read(self) -> _Read | None:
        """Read and parse the next chunk; None if there is none now."""
        chunk = self._source.next_chunk(_CHUNK_BYTES)
        if chunk is None:
            return None
        parsed = self._cloud.read(chunk) if self._cloud is not None else read_chunk(chunk.raw, chunk.fmt, self._habits)
        return _Read(parsed, len(chunk.raw), chunk.source, chunk.position)

    def _let_rest(self) -> None:
        """Wait until nobody reads ahead, for what else is asked of the source."""
        if self._ahead is not None:
            wait([self._ahead])

    def _bury(self, dead: pl.DataFrame, source: str) -> None:
        bury(self._dead_letter, dead, source, counters=self._counters, log=self._log)

    # -- flush -------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._engine.pending_rows:
            # Positions alone may have moved over markers and bad lines.
            if (self._position, self._counters_position) != self._saved_positions:
                self._finish_writing()
                self._save()
            return
        self._finish_writing()
        if self._clock is Clock.BACKFILL:
            self._refuse_too_old()
            self._take_back()
        changed = self._engine.merge()
        self._enrichment.see(changed)
        self._rollup.touch(_windows_of(changed))
        self._save()
        self._sending = self._sender.submit(self._write, changed)
        # The checkpoint just saved still has what is evicted now; the next one comes after these points are written,
        # or takes it back.
        self._evict()
        self._alive = time.monotonic()

    def _evict(self) -> None:
        self._let_go = self._engine.evict()
        for table, rows in self._let_go:
            if self._clock is Clock.BACKFILL:
                self._on_disk(partial(self._checkpoint.keep, table, rows, WINDOW))

    def _finish_writing(self) -> None:
        """Wait for the points of the last flush; what went wrong with them goes wrong here."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.result()
        self._let_go = []

    def _save(self) -> None:
        frames, notes = self._engine.dump()
        notes |= {"position": self._position, "counters": self._counters.dump(), "rollup": self._rollup.dump()}
        notes["counters_position"] = self._counters_position
        notes["source"] = self._source.place
        notes["saved"] = time.time()
        notes["rates"] = self._rates.dump()
        if self._cloud is not None:
            frames[_CLOUD_PAIRS] = self._cloud.ends.pairs
        if self._archive is not None:
            notes["archive"] = self._archive.seal(time.time() if self._clock is Clock.LIVE else 0)
            self._counters.add_all(Stage.ARCHIVE, self._archive.take_counts())
        if self._samples is not None:
            notes["samples"] = self._samples.seal(time.time())
            self._counters.add_all(Stage.ARCHIVE, self._samples.take_counts())
        notes["counters"] = self._counters.dump()
        self._on_disk(partial(self._checkpoint.save, frames, notes))
        if self._archive is not None:
            self._archive.commit()
        self._saved_positions = self._position, self._counters_position
        self._let_rest()
        self._source.release(self._position)
        if self._counters_source is not None:
            self._counters_source.release(self._counters_position)

    def _on_disk(self, attempt: Callable[[], None]) -> None:
        """Do what writes to the state's disk; wait as long as that fails.

        Nothing may be written to the store that no checkpoint holds, so the stream waits as well.

        Raises:
            StoppedError: the stop event was set while waiting.
        """
        began = time.monotonic()
        while True:
            try:
                attempt()
            except OSError as error:
                self._trouble = f"{self._checkpoint.folder} cannot be written: {error.strerror or error}"
                self._counters.add(Stage.BRIDGE, "state_retries")
                self._log.sparse("state_not_saved", why=self._trouble, hint=remedy(error, "all waits for it"))
                if self._stop.wait(_DISK_SECONDS):
                    rest = "is still in the spool" if self._source.is_resumable else "is lost"
                    raise StoppedError(f"{self._trouble}; what came after the last checkpoint {rest}") from error
            else:
                if self._trouble:
                    self._log.line("state_saved", after_seconds=time.monotonic() - began)
                    self._trouble = ""
                return

    def _keep_pending(self) -> None:
        """Save what came through a pipe and was not flushed: it cannot be read again."""
        # Their last points may not be written.
        for table, rows in self._let_go:
            self._engine.parts[table].put_back(rows)
        self._rollup.touch(_windows_of(self._engine.merge()))
        try:
            self._save()
        except StoppedError as error:
            self._log.warning("stopped", why=error.message)

    def _keep_what_can_be(self) -> None:
        """Save what came through a pipe though something else went wrong, which is to stay what the process tells."""
        try:
            self._keep_pending()
        except Exception as error:  # noqa: BLE001 - what went wrong may be anything, and go on to
            self._log.warning("pending_lost", why=f"{type(error).__name__}: {error}")

    def _write(self, changed: list[tuple[Measurement, pl.DataFrame]]) -> None:
        with self._pace.sending():
            for measurement, points in changed:
                self._writer.write(measurement, points, measurement.kept)

    def _refuse_too_old(self) -> None:
        """Stop before a point is written that the raw retention would drop in silence."""
        oldest_kept = time.time() - self._cluster.store.keep_raw
        oldest = min(
            (int(str(w.min())) for t in self._engine.tables.values() if len(w := t.pending_windows())), default=None
        )
        if oldest is not None and oldest < oldest_kept:
            when = datetime.fromtimestamp(oldest, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            days = self._cluster.store.keep_raw / 86_400
            raise UserError(
                f"the records begin at {when}, but the raw retention keeps {days:g} days",
                "raise store.retention.raw in cluster.yaml, or leave the older files out",
            )

    def _take_back(self) -> None:
        """Bring back windows that this backfill had put aside, because older records came after newer ones."""
        for name, table in self._engine.tables.items():
            windows = table.pending_windows()
            old = windows.filter(windows < table.evicted_before)
            if len(old):
                for rows in self._checkpoint.take_back(name, old):
                    table.put_back(rows)

    # -- restart -----------------------------------------------------------------------------------

    def _restore_archive(self, notes: Mapping[str, Any]) -> None:
        if self._archive is not None:
            self._archive.load(notes.get("archive"), is_backfill=self._clock is Clock.BACKFILL)
        if self._samples is not None:
            self._samples.load(notes.get("samples"))

    def _restore(self) -> None:
        loaded = self._checkpoint.load()
        self._restore_archive(loaded[1] if loaded else {})
        if loaded is None:
            self._writer.prepare()
            self._log.line("start", state="new")
            return
        frames, notes = loaded
        for setting, value in (("window", self._settings.window), ("shard", self._settings.shard)):
            if notes[setting] != value:
                raise UserError(
                    f"bridge.{setting}: {value}: {self._checkpoint.folder} was made with {notes[setting]}",
                    "set it back, or give the bridge a new bridge.state folder once the spool is read",
                )
        place = notes.get("source", self._source.place)
        if place != self._source.place:
            rest = "what was left unread there is not counted"
            self._log.warning(
                "other_source", before=place, now=self._source.place, hint=f"{rest}: finish with it first"
            )
        self._engine.load(frames, notes)
        if self._cloud is not None and _CLOUD_PAIRS in frames:
            self._cloud.ends.pairs = frames[_CLOUD_PAIRS]
        # Checkpoints of before this was kept have none.
        self._rates.load(notes.get("rates", {}))
        self._counters.load(notes["counters"])
        self._before = self._done()
        self._rollup.load(notes["rollup"], self._engine.minutes_from)
        self._position = notes["position"]
        self._source.resume(self._position)
        self._counters_position = notes["counters_position"]
        if self._counters_source is not None:
            self._counters_source.resume(self._counters_position)
        self._writer.prepare(min(self._rollup.oldest, self._engine.newest or math.inf))
        # Checkpoints of before this was kept do not say when they were made.
        if self._clock is Clock.LIVE and self._is_overtaken(notes.get("saved", time.time())):
            what = "newer points of this bridge are stored and stay: the checkpoint is from a backup, or nothing came"
            self._log.line("checkpoint_overtaken", what=what)
            self._evict()
        elif not self._stop.is_set():
            # Whoever stops us now finds them in the checkpoint at the next start.
            self._write(self._engine.all_points())
            # Else one that dies soon after each start, for want of memory, would find more at the next.
            self._evict()
        if self._clock is Clock.LIVE:
            self._rollup.touch(horizon(time.time(), self._settings.grace))
        self._log.line("start", state="restored", windows_rows=self._engine.state_rows)

    def _is_overtaken(self, saved: float) -> bool:
        """Whether a bridge went on from this checkpoint: what it has of the windows of its grace is a part by now."""
        ours = {schema.STAGE: Stage.BRIDGE.value, schema.REASON: schema.HEARTBEAT, schema.SHARD: self._settings.shard}
        conditions = (is_in(tag, [value]) for tag, value in ours.items())
        asked = Select(schema.PIPELINE, RAW).take(newest(schema.VALUE)).where(*conditions)
        # What a clock that was ahead wrote says nothing.
        asked = asked.between(int(saved) + self._settings.grace, int(time.time()) + 1)
        return bool(self._writer.patiently(lambda: [*self._store.rows(asked)]))

    # -- what the pipeline says of itself --------------------------------------------------------------

    def _report(self) -> None:
        """Write the counters and, when live, what each exporter's age is."""
        now = time.time()
        window = int(now) // self._settings.window * self._settings.window
        counters = self._counters
        self._let_rest()
        sources = [source for source in (self._source, self._counters_source) if source is not None]
        happened = sum((Counter(source.counts) for source in sources), Counter[str]())
        for reason, count in happened.items():
            counters.add(Stage.READ, reason, count - self._source_counts.get(reason, 0))
        self._source_counts = dict(happened)
        if self._clock is Clock.LIVE:
            counters.read(Stage.BRIDGE, schema.HEARTBEAT, now)
        counters.read(Stage.BRIDGE, "state_rows", self._engine.state_rows)
        counters.read(Stage.BRIDGE, "memory_bytes", resident_bytes())
        if self._archive is not None:
            for reason, value in self._archive.readings.items():
                counters.read(Stage.ARCHIVE, reason, value)
        counters.read(Stage.READ, schema.BACKLOG_BYTES, sum(source.backlog_bytes() for source in sources))
        if self._engine.newest is not None and self._clock is Clock.LIVE:
            counters.read(Stage.BRIDGE, schema.LAG_SECONDS, max(now - self._engine.newest, 0))
        befell = trouble_file.lately(self._spool, now) if self._clock is Clock.LIVE else {}
        for what in self._befell | befell.keys():
            counters.read(Stage.COLLECT, what, befell.get(what, 0))
        self._befell |= befell.keys()
        self._writer.write(schema.PIPELINE, counters.points(window, self._settings.shard), RAW)
        if self._clock is Clock.LIVE:
            readings = exporter_readings(
                self._cluster,
                self._engine.exporters,
                window=window,
                started=self._started,
                drained=self._drained,
                elsewhere=self._listed,
                unread=unread_of(self._templates, self._spool, now, self._engine.doubled),
            )
            self._writer.write(schema.EXPORTER_STATUS, readings, RAW)
            self._writer.write(schema.ENRICHMENT, self._enrichment.points(self._cluster, now, window), RAW)
        addresses = self._enrichment.addresses(now, window)
        self._writer.write(schema.ADDRESS_NAME, addresses, schema.ADDRESS_NAME.kept)
        self._rollup.touch(pl.Series(WINDOW, [window], pl.Int64))


def _windows_of(points: list[tuple[Measurement, pl.DataFrame]]) -> pl.Series:
    """Return the windows of some points."""
    columns = (frame.get_column(WINDOW) for _, frame in points)
    return pl.concat([pl.Series(WINDOW, [], pl.Int64), *columns]).unique()
