"""Column names as people read them; the machine-readable files keep SI units and full precision."""

from functools import lru_cache

from archplace.search.wording import number

_SPECIAL = {
    "id": ("design", 1.0),
    "ties": ("ties", 1.0),
    "tied_with": ("a tie with", 1.0),
    "interval_probability": ("probability of the bounds (%)", 100.0),
    "interval_basis": ("bounds drawn from", 1.0),
    "throughput_samples_per_s": ("throughput (samples/s)", 1.0),
    "bound_throughput_samples_per_s": ("bound of throughput (samples/s)", 1.0),
    "relative_throughput": ("throughput relative to the best (%)", 100.0),
    "worst_relative_throughput": ("worst relative throughput (%)", 100.0),
    "bound_worst_relative_throughput": ("bound of worst relative throughput (%)", 100.0),
    "samples_per_s_per_w": ("samples/s per W", 1.0),
    "samples_per_usd": ("samples per USD", 1.0),
    "run_s": ("whole training (days)", 1 / 86400),
    "run_j": ("whole training (MWh)", 1 / 3.6e9),
    "run_usd": ("whole training (USD)", 1.0),
    "accelerator_usd": ("accelerator (USD)", 1.0),
    "mean_power_w": ("mean power with host (W)", 1.0),
    "optimality_gap": ("optimality gap (%)", 100.0),
    "samples_per_s": ("samples/s", 1.0),
    "samples_per_s_per_mm2": ("samples/s per mm²", 1.0),
    "lower_step_s": ("lower bound of step (s)", 1.0),
    "tokens_per_s": ("tokens/s", 1.0),
    "mfu": ("MFU (%)", 100.0),
    "stage_load_balance": ("mean / largest stage load (%)", 100.0),
    "global_buffer_bytes": ("global buffer (MiB)", 2.0**-20),
}
_SUFFIXES = (
    ("_j_per_sample", "J/sample", 1.0),
    ("_usd_per_sample", "USD/sample", 1.0),
    ("_budget_left", "%", 100.0),
    ("_bytes_per_s", "GB/s", 1e-9),
    ("_bytes", "GB", 1e-9),
    ("_mm2", "mm²", 1.0),
    ("_hz", "GHz", 1e-9),
    ("_w", "W", 1.0),
    ("_s", "s", 1.0),
)
AREA_WORDS = {
    "hbm_phy": "HBM interfaces",
    "interfaces": "links",
    "fixed_function": "fixed functions",
}
"""Components of an area whose names say too little."""
_BOUNDS = (("_low", "lower bound when measured:"), ("_high", "upper bound when measured:"))
_ABBREVIATIONS = ("HBM",)


def heading(column: str) -> str:
    """Return a column's name with its unit in words; a workload's prefix stays in front."""
    label, _ = _column(column)
    return label


def cell(column: str, value: object) -> str:
    """Return a column's value in the unit of its heading."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        scale = _column(column)[1]
        return str(value) if column == "id" else number(value * scale if scale != 1 else value)
    return str(value)


@lru_cache(maxsize=1024)
def _column(column: str) -> tuple[str, float]:
    for suffix, words in _BOUNDS:
        if column.endswith(suffix):
            label, scale = _column(column.removesuffix(suffix))
            return f"{words} {label}", scale
    if column.startswith("area_") and column.endswith("_mm2") and column != "area_mm2":
        part = column.removeprefix("area_").removesuffix("_mm2")
        return f"area of {AREA_WORDS.get(part, _words(part))} (mm²)", 1.0
    prefix, _, key = column.rpartition(".")
    front = f"{prefix}: " if prefix else ""
    if key in _SPECIAL:
        label, scale = _SPECIAL[key]
        return front + label, scale
    for suffix, unit, scale in _SUFFIXES:
        if key.endswith(suffix):
            left = " budget left" if suffix == "_budget_left" else ""
            return f"{front}{_words(key.removesuffix(suffix))}{left} ({unit})", scale
    return front + _words(key), 1.0


def _words(key: str) -> str:
    words = key.replace("_", " ")
    for short in _ABBREVIATIONS:
        words = " ".join(short if word == short.lower() else word for word in words.split(" "))
    return words
