"""Traces of small training steps, collected where the tests run."""

import argparse
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.profiler import ExecutionTraceObserver
from torch.utils.checkpoint import checkpoint

from archplace.workloads.model import Model, ModelKind
from archplace.workloads.traced.lift import Lifted, lift
from archplace.workloads.traces.examples.train_gpt import GPT
from archplace.workloads.traces.host_trace import HostTrace, load_host_trace

WIDTH, HEADS, VOCABULARY, LONGEST = 32, 4, 80, 40


def traced(step: Callable[[], object]) -> HostTrace:
    """Run a step once, for the optimizer's moments, and once under the observer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.json"
        step()
        observer = ExecutionTraceObserver().register_callback(str(path))
        observer.start()
        step()
        observer.stop()
        observer.unregister_callback()
        return load_host_trace(path)


@functools.cache
def gpt_trace(
    layers: int, *, batch: int = 2, sequence: int = 12, attention: str = "fused", tied: bool = False
) -> HostTrace:
    """A training step of the example script's model."""
    sizes = argparse.Namespace(
        layers=layers,
        width=WIDTH,
        heads=HEADS,
        vocabulary=VOCABULARY,
        longest=LONGEST,
        attention=attention,
        tied=tied,
    )
    torch.manual_seed(0)
    model = GPT(sizes)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        tokens = torch.randint(VOCABULARY, (batch, sequence + 1))
        scores = model(tokens[:, :-1])
        loss = cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return traced(step)


def gpt_step_with(kind: str) -> HostTrace:
    """A step of three blocks with what scripts add: ``autocast``, ``clipping``, ``checkpoints``, ``dropout``."""
    sizes = argparse.Namespace(
        layers=3,
        width=WIDTH,
        heads=HEADS,
        vocabulary=VOCABULARY,
        longest=LONGEST,
        attention="fused",
        tied=False,
    )
    torch.manual_seed(0)
    model = GPT(sizes)
    for block in model.blocks:
        if kind == "dropout":
            block.feed_forward.append(torch.nn.Dropout(0.1))
        if kind == "checkpoints":
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        tokens = torch.randint(VOCABULARY, (2, 13))
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            scores = model(tokens[:, :-1])
            loss = cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if kind == "clipping":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return traced(step)


@functools.cache
def lifted_gpt(
    layers: int, *, batch: int = 2, sequence: int = 12, attention: str = "fused", tied: bool = False
) -> Lifted:
    """The same, lifted."""
    return lift(gpt_trace(layers, batch=batch, sequence=sequence, attention=attention, tied=tied))


def built_in_gpt(layers: int, *, tied: bool = False) -> Model:
    """The same model by its dimensions."""
    return Model(
        name="gpt",
        kind=ModelKind.DECODER,
        n_layers=layers,
        d_model=WIDTH,
        n_heads=HEADS,
        n_kv_heads=HEADS,
        head_dim=WIDTH // HEADS,
        d_ff=4 * WIDTH,
        max_positions=LONGEST,
        vocabulary=VOCABULARY,
        padded_vocabulary=VOCABULARY,
        embedding_width=WIDTH,
        tied_head=tied,
    )
