"""Traced training steps as workloads: lifted from a trace, scaled, sharded."""
