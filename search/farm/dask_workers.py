"""Ask the workers of a dask scheduler. The only module that knows dask; it is imported when a farm is used.

Each question goes to a worker of our choice rather than of the scheduler's: who answered is known, a question that
failed can go elsewhere, and a worker that dies takes with it what it held and no more.
"""

import importlib.metadata
import json
import queue
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from distributed import Client, Future, Security

from archplace.arch_configs.errors import ConfigError
from archplace.search.farm.answers import Answer, OtherVersionError, UnknownWorkError, Work, answer
from archplace.search.farm.dispatch import Failure, Reply
from archplace.search.farm.questions import Question

CONNECT_S = 10.0
"""For the scheduler to answer."""
_FRESH_S = 0.25
"""How long what the scheduler says about its workers is taken for true."""
_RECONNECT_S = 60.0
"""Between two attempts to find a lost scheduler again,"""
_RECONNECT_WAIT_S = 2.0
"""and how long one may take: this process works meanwhile."""
_PACKAGE = "archplace"


class DaskWorkers:
    """The workers of one scheduler, for one run."""

    def __init__(self, address: str, work: Work, say: Callable[[str], None]) -> None:
        """Connect to the scheduler at ``address``, or the one that a scheduler file of that name describes.

        Raises :class:`ConfigError` when nothing answers there.
        """
        self._address = address
        self._work = work
        self._known = Work(key=work.key, version=work.version, package=None)
        self._say = say
        self._own_version = importlib.metadata.version(_PACKAGE)
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._futures: dict[str, tuple[Future[Answer], str]] = {}
        self._count = 0
        self._greetings: dict[str, Future[str]] = {}
        self._welcome: set[str] = set()
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()
        self._present: frozenset[str] = frozenset()
        self._asked_at = self._lost_at = float("-inf")
        try:
            self._client = self._connect(CONNECT_S)
        except (OSError, ValueError, TypeError, KeyError, ImportError, RuntimeError) as error:
            raise ConfigError(
                f"--scheduler: no dask scheduler answers at {address} ({type(error).__name__}: {error}); start one "
                "with 'dask scheduler' and give the address it prints (tcp://HOST:PORT), or its scheduler file"
            ) from None

    def _connect(self, timeout_s: float) -> Client:
        address = self._address
        if Path(address).is_file():
            address = str(json.loads(Path(address).read_text())["address"])
        security = Security()
        if address.startswith("tls://") and security.get_connection_args("client").get("ssl_context") is None:
            raise ValueError(
                "it asks for certificates, and dask's configuration names none: set distributed.comm.tls.ca-file, "
                ".client.cert and .client.key"
            )
        # A client that is not the default one: other code in this process may use dask for itself.
        return Client(address, timeout=timeout_s, security=security, set_as_default=False)

    def close(self) -> None:
        """Leave the farm; what is still being worked on is not waited for."""
        self.drop(list(self._futures))
        # With the scheduler gone, closing waits for nothing but may say so.
        self._client.close(timeout=2.0)

    @property
    def refused(self) -> dict[str, str]:
        """Workers that are not asked, and why."""
        return self._refused

    @property
    def some_are_greeted(self) -> bool:
        """Whether workers are there that have not said their version yet."""
        return bool(self._greetings)

    def names(self) -> frozenset[str]:
        """Return the workers that are there and have the same version of this package."""
        now = time.monotonic()
        if now - self._asked_at >= _FRESH_S:
            self._present = self._look()
            self._asked_at = time.monotonic()
            self._welcome &= self._present
            self._told &= self._present
            self._greet(self._present)
        return frozenset(self._welcome - self._refused.keys())

    def _look(self) -> frozenset[str]:
        """Ask the scheduler for its workers; none while it cannot be reached."""
        if self._client.status == "running":
            try:
                return frozenset(self._client.nthreads())
            except (OSError, TimeoutError, RuntimeError):
                # The connection breaks; the status says so from the next time on.
                return frozenset()
        if self._client.status == "closed":
            self._reconnect()
        return frozenset()

    def _reconnect(self) -> None:
        now = time.monotonic()
        if now - self._lost_at < _RECONNECT_S:
            return
        if self._lost_at == float("-inf"):
            self._say(f"the scheduler at {self._address} is lost")
        self._lost_at = now
        try:
            self._client = self._connect(_RECONNECT_WAIT_S)
        except (OSError, ValueError, TypeError, KeyError, RuntimeError):
            return
        self._lost_at = float("-inf")
        self._greetings.clear()

    def _greet(self, present: frozenset[str]) -> None:
        """Ask new workers for their version, without waiting; welcome those that have answered well."""
        for name in present - self._welcome - self._refused.keys():
            greeting = self._greetings.get(name)
            if greeting is None:
                self._greetings[name] = self._client.submit(
                    importlib.metadata.version, _PACKAGE, workers=[name], key=self._ticket("version"), pure=False
                )
            elif greeting.done():
                found = _version(greeting)
                del self._greetings[name]
                if found == self._own_version:
                    self._welcome.add(name)
                elif found is not None:
                    self._refuse(name, f"archplace {found}, this is {self._own_version}")
        for name in self._greetings.keys() - present:
            del self._greetings[name]

    def _refuse(self, name: str, why: str) -> None:
        self._refused[name] = why
        self._say(f"worker {name} is not used: it has {why}; install the same version there")

    def _ticket(self, what: str) -> str:
        self._count += 1
        return f"archplace-{what}-{id(self)}-{self._count}"

    def ask(self, worker: str, question: Question) -> str:
        """Send a question, with the run for a worker that does not know it yet."""
        ticket = self._ticket("question")
        work = self._known if worker in self._told else self._work
        future: Future[Answer] = self._client.submit(answer, work, question, workers=[worker], key=ticket, pure=False)
        self._futures[ticket] = (future, worker)
        future.add_done_callback(lambda _: self._replies.put(ticket))
        return ticket

    def next_reply(self, timeout_s: float) -> Reply | None:
        """Wait for an answer or a failure; a worker that has gone is a failure of what it held."""
        try:
            ticket = self._replies.get(timeout=timeout_s)
        except queue.Empty:
            ticket = ""
        if ticket in self._futures:
            return self._reply(ticket)
        self.names()
        for held, (_, worker) in self._futures.items():
            if worker not in self._present:
                self.drop([held])
                return Reply(ticket=held, failure=Failure.LOST)
        return None

    def _reply(self, ticket: str) -> Reply:
        future, worker = self._futures[ticket]
        found: object = None
        while future.status == "finished":
            try:
                found = future.result(timeout=1.0)
                break
            except TimeoutError:
                # The answer stays where it was found until it is fetched: its worker may have gone meanwhile.
                self._asked_at = float("-inf")
                self.names()
                if worker not in self._present:
                    break
            except Exception as error:  # noqa: BLE001  (whatever reading foreign bytes raises)
                self.drop([ticket])
                return Reply(ticket=ticket, failure=Failure.NONSENSE, text=f"answered nonsense ({error})")
        status = future.status
        raised = future.exception(timeout=CONNECT_S) if status == "error" else None
        self.drop([ticket])
        if raised is not None:
            return self._failed(ticket, worker, raised)
        if status != "finished" or (worker not in self._present and found is None):
            return Reply(ticket=ticket, failure=Failure.LOST)
        self._told.add(worker)
        return Reply(ticket=ticket, answer=found)

    def _failed(self, ticket: str, worker: str, error: BaseException) -> Reply:
        name = type(error).__name__
        if isinstance(error, MemoryError):
            return Reply(ticket=ticket, failure=Failure.MEMORY)
        if isinstance(error, UnknownWorkError):
            self._told.discard(worker)
            return Reply(ticket=ticket, failure=Failure.UNKNOWN_WORK)
        if isinstance(error, OtherVersionError):
            self._refuse(worker, str(error))
            return Reply(ticket=ticket, failure=Failure.REFUSED)
        if name == "KilledWorker":
            return Reply(ticket=ticket, failure=Failure.LOST, text="was lost, and so were others with the same block")
        text = (str(error).splitlines() or [""])[0][:200]
        return Reply(ticket=ticket, failure=Failure.ERROR, text=f"failed ({name}: {text})")

    def drop(self, tickets: Iterable[str]) -> None:
        """Forget questions, and tell the scheduler to."""
        futures = [self._futures.pop(ticket)[0] for ticket in tickets if ticket in self._futures]
        if futures and self._client.status == "running":
            for future in futures:
                future.release()

    def dismiss(self, worker: str) -> None:
        """Do not name a worker any more."""
        self._refused.setdefault(worker, "given answers that were none")


def _version(greeting: "Future[str]") -> str | None:
    """Return what a worker said its version is; None where it is gone or was not to be understood."""
    if greeting.status == "finished":
        try:
            return greeting.result(timeout=CONNECT_S)
        except TimeoutError:
            return None
    if greeting.status == "error":
        error = greeting.exception(timeout=CONNECT_S)
        if isinstance(error, importlib.metadata.PackageNotFoundError):
            return "no installation of it"
    return None
