"""What storage does, told to whoever listens: `tell("storage_retries", action="fetch")`.

Storage lies below everything that knows metrics, so it tells a listener instead. `running.metrics` is one.
"""

from collections.abc import Callable

Listener = Callable[[str, float, dict[str, str]], None]
_listener: Listener | None = None


def listen(listener: Listener) -> None:
    global _listener
    _listener = listener


def tell(name: str, value: int | float = 1, **tags: str) -> None:
    if _listener is not None:
        _listener(name, float(value), tags)
