"""What the driving of batches needs."""

from dataclasses import dataclass

from api.batch.files import FileBook
from api.batch.settings import BatchSettings
from api.batch.storage import Storage
from api.batch.store import BatchStore
from api.services import Services

NUM_A_STEP = 64  # lines submitted, or collected, in one step


@dataclass(frozen=True)
class Desk:
    """Safe to share between threads."""

    shared: Services
    settings: BatchSettings

    @property
    def store(self) -> BatchStore:
        return self.shared.batches

    @property
    def storage(self) -> Storage:
        return self.shared.storage

    @property
    def files(self) -> FileBook:
        return self.shared.files
