"""Train a small GPT on random tokens, in plain PyTorch: a script to collect a trace of.

    archplace workload collect -m archplace.workloads.traces.examples.train_gpt --out gpt --args --layers 4

Pre-norm blocks of attention and a GELU feed-forward part with biases, learned positions, a final norm; AdamW.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Causal self-attention, fused or as products and a softmax."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        """Make the projections."""
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, rows: Tensor) -> Tensor:
        """Return what each position gathers; ``rows`` and result: (batch, sequence, width)."""
        batch, length, width = rows.shape
        parts = self.query_key_value(rows).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            gathered = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
            later = torch.ones(length, length, dtype=torch.bool, device=rows.device).triu(1)
            gathered = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        result: Tensor = self.projection(gathered.transpose(1, 2).reshape(batch, length, width))
        return result


class Block(nn.Module):
    """Attention and feed-forward part, each behind a norm and added to what came in."""

    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        """Make both parts."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, fused=fused)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, rows: Tensor) -> Tensor:
        """Return the rows for the next block."""
        rows = rows + self.attention(self.attention_norm(rows))
        result: Tensor = rows + self.feed_forward(self.feed_forward_norm(rows))
        return result


class GPT(nn.Module):
    """Tables of tokens and positions, blocks, a norm and a projection onto the vocabulary."""

    def __init__(self, given: argparse.Namespace) -> None:
        """Make a model of the sizes given."""
        super().__init__()
        self.tokens = nn.Embedding(given.vocabulary, given.width)
        self.positions = nn.Embedding(given.longest, given.width)
        fused = given.attention == "fused"
        self.blocks = nn.ModuleList(Block(given.width, given.heads, fused=fused) for _ in range(given.layers))
        self.norm = nn.LayerNorm(given.width)
        self.head = nn.Linear(given.width, given.vocabulary, bias=False)
        if given.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return scores of the next token: (batch, sequence, vocabulary)."""
        rows = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            rows = block(rows)
        scores: Tensor = self.head(self.norm(rows))
        return scores


def main() -> None:
    """Train for some steps."""
    given = _arguments()
    torch.manual_seed(0)
    model = GPT(given).to(given.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(given.steps):
        tokens = torch.randint(given.vocabulary, (given.batch, given.sequence + 1), device=given.device)
        scores = model(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # PyTorch leaves it without types
        optimizer.step()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT on random tokens.")
    for name, default in (
        ("layers", 2),
        ("width", 64),
        ("heads", 4),
        ("vocabulary", 256),
        ("sequence", 32),
        ("batch", 4),
        ("steps", 8),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attention", choices=("fused", "plain"), default="fused")
    parser.add_argument("--tied", action="store_true", help="the head's matrix is the table of tokens")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--longest", type=int, help="rows of the table of positions (default: tokens per sequence)")
    given = parser.parse_args()
    given.longest = given.sequence if given.longest is None else given.longest
    return given


if __name__ == "__main__":
    main()
