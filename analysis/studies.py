"""Every verdict there is, in the order in which they run. A new one is a line here."""

from dataclasses import dataclass, field
from typing import Any

from analysis.breach_study import BreachStudy
from analysis.burst_study import BurstStudy
from analysis.capacity_study import CapacityStudy
from analysis.client_studies import ClientStudies, client_studies
from analysis.cohort_study import CohortStudy
from analysis.contact_study import ContactStudy
from analysis.coverage_study import CoverageStudy
from analysis.dropout_study import DropoutStudy
from analysis.evidence import Reader
from analysis.history import EgressHistory
from analysis.inference_study import InferenceStudy
from analysis.ledger_study import LedgerStudy
from analysis.network_study import network_studies
from analysis.pattern_study import PatternStudy
from analysis.recurrence_study import RecurrenceStudy
from analysis.state import State
from analysis.step_study import StepStudy
from analysis.storage_study import StorageStudy
from analysis.straggler_study import StragglerStudy
from analysis.study import JobStudy, Study
from cluster.model import Cluster
from cluster.schema import Measurement
from ingest.logs import Log


@dataclass(frozen=True, slots=True)
class Studies:
    """What the analyser runs.

    Attributes:
        of_jobs: run first, window by window through every job.
        of_cluster: run after them, in this order.
        of_clients: run last.
    """

    of_jobs: tuple[JobStudy[Any], ...]
    of_cluster: tuple[Study, ...]
    of_clients: ClientStudies = field(default_factory=ClientStudies)

    def measurements(self) -> tuple[Measurement, ...]:
        """Return what they write, each once."""
        found = [measurement for job_study in self.of_jobs for measurement in job_study.measurements]
        studies = (*self.of_cluster, *self.of_clients.studies)
        found += [measurement for study in studies for measurement in study.measurements]
        return tuple({measurement.name: measurement for measurement in found}.values())


def studies_of(cluster: Cluster, reader: Reader, state: State, log: Log) -> Studies:
    """Return the studies of a cluster."""
    history = EgressHistory(cluster, reader.store)
    return Studies(
        of_jobs=(
            DropoutStudy(cluster, reader),
            StorageStudy(cluster, reader),
            StepStudy(cluster, reader),
            CohortStudy(cluster),
            StragglerStudy(cluster, reader),
        ),
        of_cluster=(
            ContactStudy(cluster, reader, state, log),
            *network_studies(cluster, reader.store, state, log),
            LedgerStudy(cluster, history),
            RecurrenceStudy(cluster, history),
            BreachStudy(cluster, reader.store),
            InferenceStudy(cluster, reader.store),
            CoverageStudy(cluster, reader.store),
            CapacityStudy(cluster, reader.store),
            BurstStudy(cluster, reader.store),
            PatternStudy(cluster, reader.store),
        ),
        of_clients=client_studies(cluster, reader.store, state, log),
    )
