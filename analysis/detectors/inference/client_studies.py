"""The studies of who asks inference: they share what clients asked, and wait for exports of sign-ins."""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.detectors.inference.access_study import AccessStudy
from analysis.detectors.inference.asked import Asked, delay_of
from analysis.detectors.inference.country_study import CountryStudy
from analysis.detectors.study import Study
from analysis.state import State
from app.log import Log
from cluster.model import Cluster, Role
from enrichment.watched import FileReading
from store.influx import Store


@dataclass(frozen=True, slots=True)
class ClientStudies:
    """What judges clients.

    Attributes:
        studies: run after all others, in this order.
        delay: seconds by which they are behind the others.
        readings: returns the state of each source of sign-ins.
    """

    studies: tuple[Study, ...] = ()
    delay: int = 0
    readings: Callable[[], list[FileReading]] = list


def client_studies(cluster: Cluster, store: Store, state: State, log: Log) -> ClientStudies:
    """Return those that cluster.yaml asks for: by sign-ins, by a list of who may ask, by files that know countries."""
    knows_users = bool(cluster.identity.sources or cluster.inference.access)
    knows_countries = bool(cluster.geography.files and cluster.groups_with(Role.INFERENCE))
    if not knows_users and not knows_countries:
        return ClientStudies()
    asked = Asked(cluster, store, log)
    studies: list[Study] = []
    if knows_users:
        studies.append(AccessStudy(cluster, asked))
    if knows_countries:
        studies.append(CountryStudy(cluster, store, state, asked, log))
    return ClientStudies(tuple(studies), delay_of(cluster), asked.readings)
