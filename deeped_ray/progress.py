"""Progress of long work as plain lines, readable in a terminal and in a job's log alike."""

import sys
import time


class Progress:
    """`embed: 120/226 entities, 53/s, 2 s left`, at most one line every `every_s` seconds."""

    def __init__(self, stage: str, unit: str, total: int | None = None, *, every_s: float = 2.0) -> None:
        self.stage, self.unit, self.total, self.every_s = stage, unit, total, every_s
        self.done = 0
        self._skipped = 0
        self._start = self._printed = time.monotonic()

    def skip(self, count: int) -> None:
        """Work found finished from an earlier run: done, but not part of the speed."""
        self._skipped += count
        self.advance(count)

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        now = time.monotonic()
        if now - self._printed >= self.every_s or self.done == self.total:
            self._printed = now
            # not print: Ray Train replaces it in its workers, and the line would come twice
            sys.stderr.write(self._line(now, note) + "\n")
            sys.stderr.flush()

    def finish(self) -> None:
        """The last line of work whose total was not known."""
        self.total = self.done
        self.advance(0)

    def _line(self, now: float, note: str) -> str:
        rate = (self.done - self._skipped) / max(now - self._start, 1e-9)
        parts = [
            f"{self.done:,}{f'/{self.total:,}' if self.total is not None else ''} {self.unit}",
            f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s",
        ]
        if self.total is not None and self.done < self.total and rate > 0:
            parts.append(f"{(self.total - self.done) / rate:,.0f} s left")
        return f"{self.stage}: " + ", ".join([*parts, note] if note else parts)
