"""Which strategy? Every parallel axis, pipeline schedule and memory policy of a training step on one accelerator."""
