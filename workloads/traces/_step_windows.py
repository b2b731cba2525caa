"""Which of a running script's steps are recorded, and how; needs PyTorch.

Optimizers tell when they have stepped. The tracing begins and ends outside of that call: what is still running when the
observer stops is lost.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MethodType, TracebackType
from typing import Self

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile


class Done(BaseException):
    """All that was wanted is recorded. No Exception, so that scripts that go on after errors stop, too."""


class Windows:
    """Counts the steps of the first optimizer that steps, and records those that are wanted."""

    def __init__(self, folder: Path, *, skip: int, timed: int) -> None:
        """Record into ``folder`` the step behind the first ``skip``, and ``timed`` further ones."""
        self.n_steps = 0
        """Steps that have ended."""
        self.n_timed = 0
        self.calls: Path | None = None
        self.profile: Path | None = None
        self.steps: Path | None = None
        self.failure: OSError | None = None
        """Why a trace could not be written: no error of the script, which is stopped."""
        self.rank = 0
        self._folder, self._skip, self._timed = folder, skip, timed
        self._optimizer: Optimizer | None = None
        self._observer: ExecutionTraceObserver | None = None
        self._profiler: profile | None = None

    def __enter__(self) -> Self:
        """Wait for an optimizer."""
        self._hook = register_optimizer_step_post_hook(self._meet)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and keep the further steps that have ended."""
        self._hook.remove()
        if self._optimizer is not None and "step" in vars(self._optimizer):
            self._optimizer.step = self._own_step  # type: ignore[method-assign] # its class has the same
        profiler, observer, self._profiler, self._observer = self._profiler, self._observer, None, None
        with contextlib.suppress(Done), self._writing():
            if profiler is not None:
                profiler.stop()
                if observer is None and self.n_timed:
                    self.steps = self._exported("steps", profiler)
            if observer is not None:
                observer.stop()
                observer.unregister_callback()

    def _meet(self, optimizer: Optimizer, _arguments: object, _named: object) -> None:
        """Take the first optimizer that steps; what follows its ``step`` is outside of it."""
        if self._optimizer is not None:
            return
        self._optimizer = optimizer
        self._own_step = optimizer.step
        # A bound method, because schedulers of learning rates take its function.
        optimizer.step = MethodType(self._followed(optimizer.step), optimizer)  # type: ignore[method-assign]
        self._ended()

    def _followed(self, step: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(step)
        def followed(_: Optimizer, *arguments: object, **named: object) -> object:
            result = step(*arguments, **named)
            self._ended()
            return result

        return followed

    def _ended(self) -> None:
        self.n_steps += 1
        if self.n_steps == self._skip:
            self._trace()
        elif self.n_steps == self._skip + 1:
            self._traced()
            if not self._timed:
                raise Done
            self._profiler = self._started()
        elif self.n_steps > self._skip + 1:
            self.n_timed += 1
            if self.n_timed == self._timed:
                raise Done

    def _trace(self) -> None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if distributed else 0
        self._observer = ExecutionTraceObserver().register_callback(str(self._folder / "calls.json.gz"))
        self._profiler = self._started(shapes=True)
        self._observer.start()

    def _traced(self) -> None:
        profiler, observer, self._profiler, self._observer = self._profiler, self._observer, None, None
        assert observer is not None
        assert profiler is not None
        _wait_for_devices()
        observer.stop()
        profiler.stop()
        with self._writing():
            # This compresses what was observed.
            observer.unregister_callback()
            self.calls, self.profile = self._folder / "calls.json.gz", self._exported("profile", profiler)

    def _started(self, *, shapes: bool = False) -> profile:
        _wait_for_devices()
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        profiler = profile(activities=kinds, record_shapes=shapes)
        profiler.start()
        return profiler

    def _exported(self, name: str, profiler: profile) -> Path:
        path = self._folder / f"{name}.json.gz"
        profiler.export_chrome_trace(str(path))
        return path

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Note what keeps a trace from being written, and stop: the script has no part in it."""
        try:
            yield
        except OSError as error:
            self.failure = error
            raise Done from None


def _wait_for_devices() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
