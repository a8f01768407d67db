"""Rows that denoise together in one pipeline call."""

from dataclasses import dataclass

from .batch_key import BatchKey
from .request import DiffusionRequest, Row


@dataclass(frozen=True, slots=True)
class Batch:
    """One to `max_batch_rows` rows of equal key, requests in the order of their rank, rows in order of index."""

    key: BatchKey
    rows: tuple[Row, ...]

    @property
    def requests(self) -> tuple[DiffusionRequest, ...]:
        """Its requests, each once."""
        return tuple({id(row.request): row.request for row in self.rows}.values())

    def rows_of(self, request: DiffusionRequest) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.request is request)

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two batches of about equal size; needs at least two rows."""
        middle = (len(self.rows) + 1) // 2
        return Batch(self.key, self.rows[:middle]), Batch(self.key, self.rows[middle:])

    def by_request(self) -> tuple["Batch", ...]:
        return tuple(Batch(self.key, self.rows_of(request)) for request in self.requests)
