"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# A loaded machine must not fail a law: no deadlines, and the same examples every time.
settings.register_profile(
    "archplace", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("archplace")
