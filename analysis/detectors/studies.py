"""All studies, in the order in which they run. A new one is a line here."""

from dataclasses import dataclass, field
from typing import Any

from analysis.detectors.egress.beacons import BeaconStudy
from analysis.detectors.egress.contact_study import ContactStudy
from analysis.detectors.egress.exfiltration_study import ExfiltrationStudy, drilled, learnt, summed
from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.egress.ledger import LedgerStudy
from analysis.detectors.egress.network_study import network_studies
from analysis.detectors.egress.recurrence import RecurrenceStudy
from analysis.detectors.egress.shapes import ShapeStudy
from analysis.detectors.fabric.breaches import BreachStudy
from analysis.detectors.fabric.capacity import CapacityStudy
from analysis.detectors.fabric.coverage import CoverageStudy
from analysis.detectors.fabric.packet_sizes import PacketSizeStudy
from analysis.detectors.fabric.rails import RailStudy
from analysis.detectors.fabric.unseen import UnseenStudy
from analysis.detectors.inference.client_studies import ClientStudies, client_studies
from analysis.detectors.inference.inference_load import InferenceStudy
from analysis.detectors.management.opener_study import OpenerStudy
from analysis.detectors.storage.incast import BurstStudy
from analysis.detectors.storage.storage_study import StorageStudy
from analysis.detectors.study import JobStudy, Study
from analysis.detectors.training.cohort_study import CohortStudy
from analysis.detectors.training.disturbance import DisturbanceStudy
from analysis.detectors.training.dropout_study import DropoutStudy
from analysis.detectors.training.held import HeldStudy
from analysis.detectors.training.pattern_study import PatternStudy
from analysis.detectors.training.step_study import StepStudy
from analysis.detectors.training.straggler_study import StragglerStudy
from analysis.evidence import Reader
from analysis.state import State
from app.log import Log
from cluster.model import Cluster
from store.schema import Measurement


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
            CohortStudy(cluster, reader.store),
            HeldStudy(cluster),
            StragglerStudy(cluster, reader),
        ),
        of_cluster=(
            ContactStudy(cluster, reader, state, log),
            *network_studies(cluster, reader.store, state, log),
            LedgerStudy(cluster, history),
            ExfiltrationStudy(cluster, reader.store, history, summed(cluster), learnt(cluster)),
            # Sums of their own: what a drill sends must neither hide a theft nor be one.
            *(ExfiltrationStudy(cluster, reader.store, history, [group]) for group in drilled(cluster)),
            RecurrenceStudy(cluster, history),
            ShapeStudy(cluster, reader.store, history),
            BeaconStudy(cluster, reader.store),
            BreachStudy(cluster, reader.store),
            OpenerStudy(cluster, reader.store, state, log),
            InferenceStudy(cluster, reader.store),
            CoverageStudy(cluster, reader.store),
            UnseenStudy(cluster, reader.store),
            CapacityStudy(cluster, reader.store),
            BurstStudy(cluster, reader.store),
            PatternStudy(cluster, reader.store),
            DisturbanceStudy(cluster, reader.store),
            RailStudy(cluster, reader.store),
            PacketSizeStudy(cluster, reader.windows),
        ),
        of_clients=client_studies(cluster, reader.store, state, log),
    )
