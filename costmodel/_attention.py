"""HBM traffic of attention whose scores stay on chip.

Rows and keys of one attention meet tile by tile. What one side needs stays in half of the buffer while the other side
streams through the other half; where neither side fits as a whole, a block of the first side stays and the second side
passes once per block: O(rows · keys · width / buffer) bytes (Dao et al. 2022, arXiv:2205.14135, theorem 2). Forward
blocks are of query rows, and keys and values pass; backward blocks are of keys and values with their gradients, and
queries, the context's gradient and the queries' gradient pass, the latter read and written (Dao 2023, arXiv:2307.08691,
section 3.1, algorithms 1 and 2). Behind a causal mask a block meets half of what passes.
"""

from typing import NamedTuple

import numpy as np

from archplace.arch_configs.architectures import FloatArray
from archplace.workloads.operators import FusedAttention


class Again(NamedTuple):
    """Bytes beyond each operand and result once, by buffer, shape ``(n,)``."""

    read_bytes: FloatArray
    write_bytes: FloatArray


def passes_again(attention: FusedAttention, element_bytes: float, buffer_bytes: FloatArray) -> Again:
    """Return what passes more than once through buffers of ``buffer_bytes``, shape ``(n,)``."""
    width = attention.head_dim + attention.value_dim
    if attention.gradients:
        block_of, streamed = attention.keys, attention.rows
        block_width, streamed_width = 2 * width, 2 * attention.head_dim + attention.value_dim
    else:
        block_of, streamed = attention.rows, attention.keys
        block_width, streamed_width = width, width
    half = buffer_bytes / (2 * element_bytes)
    block = np.maximum(np.floor(half / block_width), 1.0)
    met = attention.met_keys / attention.keys
    passes = np.maximum(np.ceil(block_of / block) * met, 1.0)
    again = np.where(streamed * streamed_width <= half, 0.0, passes - 1.0) * (
        attention.batch * streamed * element_bytes
    )
    written = attention.head_dim if attention.gradients else 0
    return Again(read_bytes=again * streamed_width, write_bytes=again * written)
