"""Is a rank still alive, and does it get on? Pure: time is an argument, in seconds of one clock."""

from dataclasses import dataclass

#: Until a new process has said its first words, and while it loads: importing torch can hold all its threads.
LOADING_SILENCE_S = 120.0


@dataclass(slots=True)
class Vigil:
    """Over one incarnation. `moved_s`: since when nothing was seen of the requests that it has, None without any."""

    silence_s: float
    wave_deadline_s: float
    heard_s: float
    moved_s: float | None = None
    loading: bool = True

    @property
    def patience_s(self) -> float:
        return max(LOADING_SILENCE_S, self.silence_s) if self.loading else self.silence_s

    def due_s(self) -> float:
        """When `complaint` has something to say if nothing is heard until then."""
        quiet = self.heard_s + self.patience_s
        return quiet if self.moved_s is None else min(quiet, self.moved_s + self.wave_deadline_s)

    def complaint(self, now: float) -> str | None:
        """Why it has to be ended, if it has to."""
        if now >= self.heard_s + self.patience_s:
            return f"no sign of life for {self.patience_s:g} s"
        if self.moved_s is not None and now >= self.moved_s + self.wave_deadline_s:
            return f"its requests have not moved for {self.wave_deadline_s:g} s"
        return None

    def forgive(self, seconds: float) -> None:
        """The watcher itself was stopped for so long, and could not have heard."""
        self.heard_s += seconds
        if self.moved_s is not None:
            self.moved_s += seconds
