"""A word on stderr when something takes longer than one waits without asking."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

SECONDS_IN_SILENCE = 1.0
SECONDS_BETWEEN_LINES = 10.0


class Waiting:
    """What can be said about the work while it is done."""

    def __init__(self) -> None:
        self.share: Callable[[], float | None] = lambda: None
        """How much is done, from 0 to 1, or None; called from another thread."""

    def words(self) -> str:
        """Return what stands behind the seconds."""
        share = self.share()
        return "" if share is None else f", {share:.0%} read"


@contextlib.contextmanager
def patience(doing: str) -> Iterator[Waiting]:
    """Say what is being done once it takes longer than a second, and from then on every ten seconds.

    How much of it is done is said too, where the work sets ``share`` of what this gives.
    """
    done, started, waiting = threading.Event(), time.monotonic(), Waiting()

    def speak() -> None:
        wait = SECONDS_IN_SILENCE
        while not done.wait(wait):
            with contextlib.suppress(OSError):
                print(f"{doing}: {time.monotonic() - started:.0f} s{waiting.words()}", file=sys.stderr, flush=True)
            wait = SECONDS_BETWEEN_LINES

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield waiting
    finally:
        done.set()
        speaker.join()
