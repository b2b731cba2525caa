"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

from archplace.cli import _patience

# A loaded machine must not fail a law: no deadlines, and the same examples every time.
settings.register_profile(
    "archplace", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("archplace")

# Nor may it add lines to what commands say: tests that watch for them set this themselves.
_patience.SECONDS_IN_SILENCE = 3600.0
