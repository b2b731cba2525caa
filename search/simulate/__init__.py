"""Simulators run on exported cases: what they found, beside what was predicted."""
