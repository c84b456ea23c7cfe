from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import StoreSettings
from store.influx import Store
from store.local_influxdb import LocalInfluxDB


@pytest.fixture
def store(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Store]:
    """An empty store with the retentions of the repository's cluster.yaml."""
    with closing(Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))) as found:
        found.ensure(load_cluster(Path("cluster.yaml")).retentions())
        yield found
