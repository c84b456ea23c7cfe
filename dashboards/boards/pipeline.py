"""Pipeline: can the numbers be trusted? Who exports, how late, what is lost, refused, suppressed or guessed."""

from dataclasses import replace

from cluster.model import Cluster, KafkaFormat
from dashboards import panels, questions
from dashboards.board import Page
from dashboards.links import to_board
from dashboards.palette import ACT, LOOK, QUIET
from dashboards.panels import Built, Cell, Column, Face, Limit, TableOrder
from store import schema
from store.influxql import Column as Value
from store.influxql import (
    Condition,
    Query,
    Select,
    Unit,
    beside,
    bit_rate,
    count,
    event_rate,
    highest,
    is_in,
    matches,
    newest,
    not_in,
    ratio,
    scaled,
    total,
)
from store.schema import ListState, Stage

BOARD = "pipeline"

_BY_EXPORTER = f"$tag_{schema.EXPORTER}"
_BY_REASON = f"$tag_{schema.REASON}"
_MINUTE = 60
_GROWTH = "growth"
_LIST_COLOURS = {ListState.OK: QUIET, ListState.STALE: LOOK, ListState.BROKEN: ACT}


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            _data_age(cluster),
            _exporter_age(cluster),
            _exporters(cluster),
            _flow_rate(cluster),
            _lag(cluster),
            _lost(cluster),
            _late(cluster),
            _suppressed(cluster),
            _sampling(cluster),
            _dead_letters(cluster),
            _store_writes(cluster),
            _series(cluster),
            _readings(cluster),
            _counters(cluster),
            _lists(cluster),
            _relays(cluster),
        ),
        since="3h",
        tags=("pipeline",),
    )


def _exporter() -> Select:
    return Select(schema.EXPORTER_STATUS, schema.RAW)


def _of_each(cluster: Cluster, column: Value, meaning: str, *, settled: bool = True) -> list[Query]:
    query = _exporter().take(column).by(schema.EXPORTER)
    return [query.over_time(cluster, meaning, alias=_BY_EXPORTER, settled=settled)]


def _data_age(cluster: Cluster) -> Built:
    silent = cluster.thresholds.ingest_silent
    since = panels.newest(cluster, silent)
    return panels.stat(
        cluster,
        Face(
            "data_age", "Age of the newest flow record",
            f"Seconds since the newest flow record of any exporter; blind: no word of any within {since}.",
            "One live exporter is enough to look fresh here.",
            "The chart beside it shows each exporter; if all are silent, look at the collector and the bridge.",
            x=0, y=0, w=6, h=8, links=(to_board("noc_wall"),), since=since, by_arrival=True,
        ),
        [questions.newest_age().per_series("Age of the newest record.")],
        limit=Limit(look=silent / 2, act=silent),
        missing=("blind", ACT),
        text="value",
        links=(),
    )  # fmt: skip


def _exporter_age(cluster: Cluster) -> Built:
    silent = cluster.thresholds.exporter_silent
    return panels.time_series(
        cluster,
        Face(
            "exporter_age", "Age of each exporter's newest record",
            "Seconds since the newest record of each exporter, the most in each bin; the dashed line is the alert's "
            f"limit of {silent} s.",
            "Quiet links send rarely: a high age at night need not be a fault. A gap means that the bridge was silent.",
            "The table below shows what else is wrong with the exporter.",
            x=6, y=0, w=18, h=8, links=(to_board("training", "Training"),),
        ),
        [_ages(cluster)],
        limit=Limit(act=silent),
        legend_right=True,
        links=(),
    )  # fmt: skip


def _ages(cluster: Cluster) -> Query:
    """Return the largest age of each bin: over days, bins are longer than most silences."""
    short, long = (Condition(f"$__interval_ms {sign} {_MINUTE * 1000}", is_moving=True) for sign in ("<", ">="))
    ages = questions.exporter_ages()
    minutes = replace(ages, retention=schema.MINUTE).where(long).each(_MINUTE)
    query = Select((ages.where(short).binned(), minutes)).take(highest(schema.AGE)).by(schema.EXPORTER)
    return query.over_time(cluster, "Seconds since its newest record.", alias=_BY_EXPORTER, settled=False)


def _exporters(cluster: Cluster) -> Built:
    silent = cluster.thresholds.exporter_silent
    sums = (
        schema.EXPORTER_RECORDS, schema.EXPORTER_BYTES, schema.SEQ_LOST, schema.UNKNOWN_RATE, schema.ZERO_COUNTERS,
        schema.SKEWED, schema.LATE_BYTES, schema.CLAMPED_BYTES, schema.EXPORTER_SUPPRESSED,
    )  # fmt: skip
    largest = (highest(schema.LAG), highest(schema.SKEW))
    totals = tuple(map(total, sums))
    # Of several bridges or partitions, the one that heard the exporter last knows its age, and not one that was stopped
    # before. Asked apart: InfluxDB 1.x reads all columns of an inner question again for each column of the outer one.
    said = (schema.AGE, schema.SAMPLING)
    each = _exporter().take(*map(newest, (schema.LAST_SEEN, *said))).by(schema.EXPORTER, schema.SHARD)
    # Of one that was never heard there is its age alone, since the bridge began to listen.
    unheard = _exporter().take(scaled(newest(schema.AGE), "0", schema.LAST_SEEN.name, Unit.MOMENT), newest(schema.AGE))
    every = each, unheard.by(schema.EXPORTER, schema.SHARD)
    now = Select(every).take(highest(schema.LAST_SEEN), *map(beside, said)).by(schema.EXPORTER)
    counts = _exporter().take(*largest, *totals).by(schema.EXPORTER)
    look = Limit(look=1)
    counted = (
        (schema.SEQ_LOST, "Lost", Unit.COUNT, look),
        (schema.UNKNOWN_RATE, "Rate unknown", Unit.COUNT, look),
        (schema.ZERO_COUNTERS, "Zero counters", Unit.COUNT, look),
        (schema.SKEWED, "Skewed", Unit.COUNT, look),
        (schema.LATE_BYTES, "Late", Unit.BYTES, Limit()),
        (schema.CLAMPED_BYTES, "Clamped", Unit.BYTES, Limit(look=1)),
        (schema.EXPORTER_SUPPRESSED, "Suppressed", Unit.BYTES, Limit()),
    )
    return panels.table(
        cluster,
        Face(
            "exporters", "Exporters in this range",
            "Each exporter's records, age, lag, sampling, and what was lost, guessed or corrected of it.",
            "Devices that drop flows before they number them lose in silence.",
            "Orange columns name the fault; the charts below show when it began.",
            x=0, y=8, w=24, h=9, links=(to_board("noc_wall"),),
        ),
        [one.per_series("An exporter.").as_table() for one in (now, counts)],
        [
            Column(schema.EXPORTER, "Exporter", width=150),
            Column(schema.AGE.name, "Age", Unit.SECONDS, Cell.COLOUR, limit=Limit(act=silent), width=90),
            Column(schema.EXPORTER_RECORDS.name, "Records", Unit.COUNT, Cell.BAR),
            Column(schema.EXPORTER_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            Column(schema.LAG.name, "Lag", Unit.SECONDS, width=84),
            Column(schema.SKEW.name, "Skew", Unit.SECONDS, width=84),
            Column(schema.SAMPLING.name, "1 in", Unit.COUNT, width=70),
            *(
                Column(one.name, title, unit, Cell.COLOUR if limit.look else Cell.TEXT, limit=limit, width=105)
                for one, title, unit, limit in counted
            ),
        ],
        order=TableOrder(schema.AGE.name),
        before=panels.joined(schema.EXPORTER),
    )  # fmt: skip


def _flow_rate(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "flow_rate", "Flow records a second",
            "Records received from each exporter, stacked.",
            "Records that never arrived are not in it.",
            "A step down without a step in age is lost data or quiet links: compare with Lost.",
            x=0, y=17, w=12, h=8, links=(to_board("noc_wall"),),
        ),
        _of_each(cluster, event_rate(schema.EXPORTER_RECORDS), "Records a second."),
        stacked=True,
        legend_right=True,
        links=(),
    )  # fmt: skip


def _lag(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "lag", "Lag of each exporter's records",
            "Mean time from the end of a flow to the arrival of its record.",
            "The exporter's cache timeouts are in it, and its clock's error too.",
            "A lag above the grace of the windows turns into clamped bytes.",
            x=12, y=17, w=12, h=8, links=(to_board("noc_wall"),),
        ),
        _of_each(cluster, highest(schema.LAG), "Seconds of lag.", settled=False),
        limit=Limit(look=cluster.bridge.grace),
        legend_right=True,
        links=(),
    )  # fmt: skip


def _lost(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "lost", "Lost before us, a second",
            "Records missing by gaps in each exporter's sequence numbers.",
            "NetFlow v9 numbers datagrams: their records are estimated. Exporters without numbers show nothing.",
            "Look at the link to the collector and its receive buffer.",
            x=0, y=25, w=8, h=8, links=(to_board("noc_wall"),),
        ),
        _of_each(cluster, event_rate(schema.SEQ_LOST), "Records lost a second."),
        links=(),
    )  # fmt: skip


def _late(cluster: Cluster) -> Built:
    series = ((schema.LATE_BYTES, "late"), (schema.CLAMPED_BYTES, "clamped to the oldest window"))
    return panels.time_series(
        cluster,
        Face(
            "late", "Late and clamped bytes",
            "Bit/s that came after their window had closed, and bit/s so old that they went to the oldest window kept.",
            "Late bytes are in the right window; clamped bytes are in the totals, but some minutes off.",
            "The exporters' table names who sends them.",
            x=8, y=25, w=8, h=8, links=(to_board("noc_wall"),),
        ),
        [_exporter().take(bit_rate(field)).over_time(cluster, field.text, alias=name) for field, name in series],
        links=(),
    )  # fmt: skip


def _suppressed(cluster: Cluster) -> Built:
    share = ratio((schema.EXPORTER_SUPPRESSED,), schema.EXPORTER_BYTES, "suppressed")
    return panels.time_series(
        cluster,
        Face(
            "suppressed", "Share counted already by another exporter",
            "Bytes of each exporter that were left out of the totals, because another one counts that flow.",
            "A share of 0 where several exporters see the same flows means that totals are doubled.",
            "Compare with `counts` and `authority` in cluster.yaml.",
            x=16, y=25, w=8, h=8, links=(to_board("group_matrix"),),
        ),
        _of_each(cluster, share, "Share of suppressed bytes."),
        links=(),
    )  # fmt: skip


def _sampling(cluster: Cluster) -> Built:
    return panels.time_series(
        cluster,
        Face(
            "sampling", "Sampling rate applied",
            "One packet in how many each exporter looks at, as applied to its counters.",
            "An unknown rate counts as 1:1: then the exporter's bytes are too low by that factor.",
            "The exporters' table counts records of unknown rate.",
            x=0, y=33, w=8, h=8, links=(to_board("noc_wall"),),
        ),
        _of_each(cluster, highest(schema.SAMPLING), "1 in this many.", settled=False),
        links=(),
    )  # fmt: skip


def _growth(cluster: Cluster, reading: Select, meaning: str) -> Query:
    """Return how fast running totals grow, by reason; a total that was reset counts from there."""
    last = newest(schema.TOTAL)
    growth = f"non_negative_derivative({last.expression}, 1s)"
    grown = Value(growth, _GROWTH, Unit.COUNT, last.reads)
    inner = reading.take(grown).by(schema.STAGE, schema.REASON, schema.SHARD)
    return (
        Select(inner.binned())
        .take(total(grown))
        .by(schema.REASON)
        .over_time(cluster, meaning, alias=_BY_REASON, settled=False)
    )


def _dead_letters(cluster: Cluster) -> Built:
    reading = Select(schema.PIPELINE, schema.RAW).where(questions.is_dead_letter())
    return panels.time_series(
        cluster,
        Face(
            "dead_letters", "Dead letters a second, by reason",
            "Lines of the collector's output that were no flow records.",
            "Their traffic is in no number of any board.",
            "The dead-letter file in the bridge's state folder has the lines.",
            x=8, y=33, w=8, h=8, links=(to_board("noc_wall"),),
        ),
        [_growth(cluster, reading, "Dead letters a second.")],
        missing="none",
        links=(),
    )  # fmt: skip


def _store_writes(cluster: Cluster) -> Built:
    # Bytes would dwarf everything else on this axis; the table below has them.
    reading = Select(schema.PIPELINE, schema.RAW).where(
        is_in(schema.STAGE, [Stage.WRITE.value]), not_in(schema.REASON, [schema.BYTES.name])
    )
    return panels.time_series(
        cluster,
        Face(
            "store_writes", "Writes to the store, a second",
            "Points written, batches retried and points refused, as the bridge counts them.",
            "While the store is away nothing can be shown: the gap is the outage.",
            "Refused points are lost; the bridge's log says why.",
            x=16, y=33, w=8, h=8, links=(to_board("noc_wall"),),
        ),
        [_growth(cluster, reading, "Counted a second.")],
        links=(),
    )  # fmt: skip


def _series(cluster: Cluster) -> Built:
    written = Select(schema.EGRESS, schema.RAW).take(newest(schema.BYTES)).by(
        schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.PROTO, schema.SERVICE, schema.OFF_HOURS
    )  # fmt: skip
    in_use = Select(written.binned()).take(count(schema.BYTES, "series"))
    return panels.time_series(
        cluster,
        Face(
            "series", "Outside conversations written by name",
            "How many conversations with the outside had points of their own in each bin.",
            f"Beyond the budget of {cluster.bridge.series_budget} series kept alive, destinations are summed as other.",
            "Egress & security lists the conversations.",
            x=0, y=41, w=8, h=9, links=(to_board("egress"),),
        ),
        [in_use.over_time(cluster, "Conversations with points in the bin.", alias="conversations")],
        links=(),
    )  # fmt: skip


def _readings(cluster: Cluster) -> Built:
    # The heartbeat is a moment, not a measure.
    reading = Select(schema.PIPELINE, schema.RAW).where(not_in(schema.REASON, [schema.HEARTBEAT]))
    tags = schema.STAGE, schema.REASON
    most = highest(schema.VALUE, "highest")
    each = reading.take(newest(schema.VALUE), most).by(*tags, schema.SHARD)
    query = Select(each).take(highest(schema.VALUE), highest(most))
    query = query.by(*tags)
    return panels.table(
        cluster,
        Face(
            "readings", "Readings of the bridge",
            "What the parts of the pipeline last said of themselves, and the most they said in this range.",
            "Units differ: each name ends in its own. Of several bridges or partitions, the largest number is shown.",
            "A growing backlog means that the bridge or the store is too slow for what arrives.",
            x=8, y=41, w=7, h=9, links=(to_board("noc_wall"),),
        ),
        [query.per_series("A reading.").as_table()],
        [
            Column(schema.STAGE, "Part", width=100),
            Column(schema.REASON, "Reading"),
            Column(schema.VALUE.name, "Last", Unit.COUNT, width=95),
            Column("highest", "Highest", Unit.COUNT, width=95),
        ],
        limit_rows=0,
    )  # fmt: skip


def _counters(cluster: Cluster) -> Built:
    return panels.table(
        cluster,
        Face(
            "counters", "Everything counted in this range",
            "How much each counter of the pipeline grew.",
            "A counter that never counted is missing, not zero.",
            "The names are explained in the documentation of the pipeline.",
            x=15, y=41, w=9, h=9, links=(to_board("noc_wall"),),
        ),
        [
            questions.counter_growth(matches(schema.REASON, f"^(.*_)?{schema.BYTES.name}$", holds=is_bytes), name=name)
            .by(schema.STAGE, schema.REASON)
            .per_series("Growth of a counter.")
            .as_table()
            for name, is_bytes in ((schema.BYTES.name, True), (_GROWTH, False))
        ],
        [
            Column(schema.STAGE, "Part", width=100),
            Column(schema.REASON, "Counted"),
            Column(_GROWTH, "Times", Unit.COUNT, width=90),
            Column(schema.BYTES.name, "Bytes", Unit.BYTES, width=90),
        ],
        before=[{"id": "merge", "options": {}}],
        order=TableOrder(_GROWTH),
        limit_rows=0,
    )  # fmt: skip


def _lists(cluster: Cluster) -> Built:
    told = schema.LIST_ENTRIES, schema.LIST_AGE, schema.LIST_SKIPPED, schema.LIST_ERROR
    tags = schema.NAME, schema.KIND
    each = Select(schema.ENRICHMENT, schema.RAW).take(*map(newest, (schema.LIST_STATE, *told))).by(*tags, schema.SHARD)
    # Bridges on several machines have a file each.
    select = Select(each).take(highest(schema.LIST_STATE), *map(beside, told)).by(*tags)
    states = panels.words({state: (word, _LIST_COLOURS[state]) for state, word in schema.LIST_STATE_WORDS.items()})
    return panels.table(
        cluster,
        Face(
            "lists", "Lists about addresses, now",
            "Files that name, place or judge outside addresses: what is in use, how old it is, what is wrong with it, "
            "by what bridges said within ten minutes; of several, the one that is worst off.",
            "A list that is in use and young may still be wrong: its content is not checked.",
            "A broken file is not in use; the last good version is, until the bridge is restarted.",
            x=0, y=50, w=24, h=7, links=(to_board("egress"),), since="10m", by_arrival=True,
        ),
        [select.per_series("A list.").as_table()],
        [
            Column(schema.NAME, "List", width=170),
            Column(schema.KIND, "Kind", width=130),
            Column(schema.LIST_STATE.name, "State", cell=Cell.COLOUR, mappings=(states,), width=90),
            Column(schema.LIST_ENTRIES.name, "Entries", Unit.COUNT, width=100),
            Column(schema.LIST_AGE.name, "Age", Unit.SECONDS, width=110),
            Column(schema.LIST_SKIPPED.name, "Skipped", Unit.COUNT, width=100),
            Column(schema.LIST_ERROR.name, "What is wrong"),
        ],
        order=TableOrder(schema.LIST_STATE.name),
        limit_rows=0,
    )  # fmt: skip


def _relays(cluster: Cluster) -> Built:
    tags = schema.RELAY, schema.SHARD
    said = (
        schema.RELAY_AGE, schema.RELAY_BACKLOG, schema.RELAY_RECORDS, schema.RELAY_BYTES, schema.RELAY_DEAD_LETTERS,
        schema.RELAY_REPEATED, schema.RELAY_TRANSACTIONS, schema.RELAY_RETRIED,
    )  # fmt: skip
    each = Select(schema.RELAY_STATUS, schema.RAW).take(newest(schema.RELAY_LAST_SEEN), *map(newest, said)).by(*tags)
    # Where a relay came to another partition, its last words count: started again it counts from 0, and the partition
    # before would stand above that, or, where nobody writes its age any more, look younger.
    select = Select(each).take(highest(schema.RELAY_LAST_SEEN), *map(beside, said)).by(schema.RELAY)
    is_used = bool(cluster.kafka.brokers) and cluster.kafka.format is KafkaFormat.CLUSTERFLOW
    return panels.table(
        cluster,
        Face(
            "relays", "Relays",
            "Those that bring collectors' spools to Kafka: when each last reported, what waits in its spools, "
            "and what it counted since it was started.",
            "Without Kafka there are none. With it, none means that no relay has said anything in this range.",
            "Red age: the alert's limit; look at that relay's host. A growing backlog: it or the brokers are too slow.",
            x=0, y=57, w=24, h=6, links=(to_board("noc_wall"),),
        ),
        [select.per_series("A relay.").as_table()],
        [
            Column(schema.RELAY, "Relay", width=200),
            Column(
                schema.RELAY_AGE.name, "Age", Unit.SECONDS, Cell.COLOUR,
                limit=Limit(act=cluster.thresholds.relay_silent), width=110,
            ),
            Column(schema.RELAY_BACKLOG.name, "Backlog", Unit.BYTES, Cell.BAR),
            Column(schema.RELAY_RECORDS.name, "Records", Unit.COUNT, Cell.BAR),
            Column(schema.RELAY_BYTES.name, "Read", Unit.BYTES, width=110),
            Column(
                schema.RELAY_DEAD_LETTERS.name, "Dead letters", Unit.COUNT, Cell.COLOUR, limit=Limit(look=1), width=120
            ),
            Column(schema.RELAY_REPEATED.name, "Read twice", Unit.COUNT, width=110),
            Column(schema.RELAY_TRANSACTIONS.name, "Transactions", Unit.COUNT, width=120),
            Column(schema.RELAY_RETRIED.name, "Sent again", Unit.COUNT, width=110),
        ],
        order=TableOrder(schema.RELAY_AGE.name),
        missing="no relay was heard in this range" if is_used else "no relays: Kafka is not used, or without them",
        limit_rows=0,
    )  # fmt: skip
