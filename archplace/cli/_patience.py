"""A word on stderr when something takes longer than one waits without asking."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

SECONDS_IN_SILENCE = 1.0
SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def patience(doing: str) -> Iterator[None]:
    """Say what is being done once it takes longer than a second, and from then on every ten seconds."""
    done, started = threading.Event(), time.monotonic()

    def speak() -> None:
        wait = SECONDS_IN_SILENCE
        while not done.wait(wait):
            with contextlib.suppress(OSError):
                print(f"{doing}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
            wait = SECONDS_BETWEEN_LINES

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()
