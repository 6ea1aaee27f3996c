"""Progress of long work as plain lines, readable in a terminal and in a job's log alike, and as numbers for machines."""

import logging
import sys
import time

from deeped_ray.running import logs, metrics

logger = logging.getLogger(__name__)


class Progress:
    """`embed: 120/226 entities, 53/s, 2 s left`, at most one line every `every_s` seconds.

    Whoever shows progress has begun a stage: from then on the process's other lines and metrics are about it too.
    """

    def __init__(self, stage: str, unit: str, total: int | None = None, *, every_s: float = 2.0) -> None:
        self.stage, self.unit, self.total, self.every_s = stage, unit, total, every_s
        self.done = 0
        self._skipped = 0
        self._start = self._printed = time.monotonic()
        logs.label(stage=stage)

    def skip(self, count: int) -> None:
        """Work found finished from an earlier run: done, but not part of the speed."""
        self._skipped += count
        self.advance(count)

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        now = time.monotonic()
        if now - self._printed >= self.every_s or self.done == self.total:
            self._printed = now
            self._tell((self.done - self._skipped) / max(now - self._start, 1e-9), note)

    def finish(self) -> None:
        """The last line of work whose total was not known."""
        self.total = self.done
        self.advance(0)

    def _tell(self, rate: float, note: str) -> None:
        seconds_left = None
        if self.total is not None and self.done < self.total and rate > 0:
            seconds_left = (self.total - self.done) / rate
        line = self._line(rate, seconds_left, note)
        if logs.is_json():
            fields = {"done": self.done, "total": self.total, "unit": self.unit, "note": note}
            left = None if seconds_left is None else round(seconds_left, 1)
            logger.info(line, extra={"fields": {**fields, "rate": round(rate, 3), "seconds_left": left}})
        else:
            # not print: Ray Train replaces it in its workers, and the line would come twice
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        metrics.record("done", self.done, stage=self.stage, unit=self.unit)
        if self.total is not None:
            metrics.record("size", self.total, stage=self.stage, unit=self.unit)

    def _line(self, rate: float, seconds_left: float | None, note: str) -> str:
        parts = [
            f"{self.done:,}{f'/{self.total:,}' if self.total is not None else ''} {self.unit}",
            f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s",
        ]
        if seconds_left is not None:
            parts.append(f"{seconds_left:,.0f} s left")
        return f"{self.stage}: " + ", ".join([*parts, note] if note else parts)
