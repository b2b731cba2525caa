"""Small models of several families, written as their users write them, and their traced steps."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from traced_gpt import traced

from archplace.workloads.traces.host_trace import HostTrace

VOCABULARY, LENGTH = 64, 12


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, rows):
        return self.gain * (rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(rows: Tensor) -> Tensor:
    half = rows.shape[-1] // 2
    return torch.cat((-rows[..., half:], rows[..., :half]), -1)


class LlamaBlock(nn.Module):
    """Rotated queries and keys, fewer key heads than query heads, SwiGLU."""

    def __init__(self, width, heads, kv_heads, d_ff):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, width // heads
        self.query, self.output = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, kv_heads * self.head_dim, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, d_ff, bias=False) for _ in range(2))
        self.down = nn.Linear(d_ff, width, bias=False)
        self.first, self.second = RmsNorm(width), RmsNorm(width)

    def forward(self, rows, cos, sin):
        batch, length, _ = rows.shape
        normed = self.first(rows)
        query, key, value = (
            part(normed).view(batch, length, -1, self.head_dim).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        query, key = (one * cos + turned(one) * sin for one in (query, key))
        shared = self.heads // self.kv_heads
        key, value = (
            one[:, :, None].expand(-1, -1, shared, -1, -1).reshape(batch, self.heads, length, self.head_dim)
            for one in (key, value)
        )
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = rows + self.output(context.transpose(1, 2).reshape(batch, length, -1))
        normed = self.second(rows)
        return rows + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, layers, width=32, heads=4, kv_heads=2, d_ff=48):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv_heads, d_ff) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head_dim = width // heads

    def forward(self, tokens):
        frequencies = 1 / (10000 ** (torch.arange(0, self.head_dim, 2) / self.head_dim))
        angles = torch.outer(torch.arange(tokens.shape[1]), frequencies)
        angles = torch.cat((angles, angles), -1)
        rows = self.tokens(tokens)
        for block in self.blocks:
            rows = block(rows, angles.cos(), angles.sin())
        return self.head(self.norm(rows))


class Experts(nn.Module):
    """Each expert takes the tokens that want it most, as many as its capacity."""

    def __init__(self, width=16, experts=4, d_ff=24):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, d_ff))
        self.down = nn.Parameter(torch.randn(experts, d_ff, width))

    def forward(self, rows):
        flat = self.norm(rows).reshape(-1, rows.shape[-1])
        chosen = self.router(flat).softmax(-1).t().topk(len(flat) // 2, -1)
        inner = functional.gelu(torch.bmm(flat[chosen.indices], self.up))
        outer = torch.bmm(inner, self.down) * chosen.values[..., None]
        gathered = torch.zeros_like(flat).index_add(0, chosen.indices.flatten(), outer.flatten(0, 1))
        return rows + gathered.view(rows.shape)


class Stack(nn.Module):
    """Tokens, blocks and a head."""

    def __init__(self, width, blocks):
        super().__init__()
        self.tokens, self.blocks, self.head = nn.Embedding(VOCABULARY, width), blocks, nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.blocks(self.tokens(tokens)))


class ConvNet(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=2)
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(8, 10)

    def forward(self, images):
        rows = functional.max_pool2d(functional.relu(self.norm(self.first(images))), 2)
        for block in self.blocks:
            rows = functional.relu(rows + block(rows))
        return self.head(functional.adaptive_avg_pool2d(rows, 1).flatten(1))


def step_of(model: nn.Module, data: Callable[[], tuple[Tensor, Tensor]], *, microbatches: int = 1) -> HostTrace:
    """A traced step with cross entropy and AdamW, gradients of several microbatches added up."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(microbatches):
            inputs, labels = data()
            scores = model(inputs)
            functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels.reshape(-1)).backward()
        optimizer.step()

    return traced(step)


def tokens(batch: int) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(VOCABULARY, (batch, LENGTH + 1))
    return drawn[:, :-1], drawn[:, 1:]


@functools.cache
def token_step(kind: str, *, batch: int = 2, microbatches: int = 1) -> HostTrace:
    """A step of a model of tokens: ``llama``, ``experts``, ``encoder``, ``dropout``, ``fourier``."""
    torch.manual_seed(0)
    model = {
        "llama": lambda: Llama(3),
        "experts": lambda: Stack(16, nn.Sequential(*(Experts() for _ in range(3)))),
        "encoder": lambda: Stack(
            16,
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 4, enable_nested_tensor=False
            ),
        ),
        "fourier": lambda: Stack(16, nn.Sequential(nn.Linear(16, 16), Fourier(), nn.Linear(16, 16))),
    }[kind]()
    return step_of(model, lambda: tokens(batch), microbatches=microbatches)


class Fourier(nn.Module):
    """What no rule is for."""

    def forward(self, rows):
        return torch.fft.irfft(torch.fft.rfft(rows), n=rows.shape[-1])


@functools.cache
def image_step(blocks: int, *, batch: int = 4) -> HostTrace:
    """A step of a convolutional network on images of 16 by 16."""
    torch.manual_seed(0)
    return step_of(ConvNet(blocks), lambda: (torch.randn(batch, 3, 16, 16), torch.randint(10, (batch,))))
