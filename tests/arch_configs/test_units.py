"""Quantities with units."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archplace.arch_configs.units import (
    AREA,
    BYTES,
    BYTES_PER_SECOND,
    FREQUENCY,
    POWER,
    TIME,
    format_bytes,
    format_bytes_per_s,
    format_quantity,
    parse_quantity,
)

DIMENSIONS = [BYTES, BYTES_PER_SECOND, FREQUENCY, TIME, POWER, AREA]


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("16 MiB", BYTES, 16 * 2**20),
        ("80 GB", BYTES, 80 * 10**9),
        ("0.1 GB", BYTES, 10**8),
        (1048576, BYTES, 1048576),
        ("512", BYTES, 512),
        ("900 GB/s", BYTES_PER_SECOND, 9e11),
        ("900GB/s", BYTES_PER_SECOND, 9e11),
        ("200 Gb/s", BYTES_PER_SECOND, 25e9),
        ("200 Gbit/s", BYTES_PER_SECOND, 25e9),
        ("4 GiB/s", BYTES_PER_SECOND, 4 * 2**30),
        (614e9, BYTES_PER_SECOND, 614e9),
        ("1.05 GHz", FREQUENCY, 1.05e9),
        ("700 ns", TIME, 7e-7),
        ("2 us", TIME, 2e-6),
        ("2 µs", TIME, 2e-6),
        ("3 min", TIME, 180.0),
        ("400 W", POWER, 400.0),
        ("850 mm2", AREA, 850.0),
        ("760.041386 um2", AREA, 760.041386e-6),
        ("8.5 cm²", AREA, 850.0),
    ],
)
def test_quantities(text, dimension, value):
    assert parse_quantity(text, dimension) == value


@pytest.mark.parametrize(
    ("value", "dimension", "message"),
    [
        ("16 MIB", BYTES, "found the unit 'MIB'; did you mean 'MiB'? allowed units of capacity: B, kB, MB"),
        ("9 gb/s", BYTES_PER_SECOND, "found the unit 'gb/s'; did you mean 'GB/s' or 'Gb/s'? allowed units"),
        ("9 GHz", BYTES, "found the unit 'GHz'; "),
        ("fast", BYTES_PER_SECOND, "found the text 'fast'; allowed: bandwidth such as '900 GB/s'"),
        ("1,5 GHz", FREQUENCY, "found the text '1,5 GHz'"),
        ("", TIME, "found the text ''"),
        ("-3 W", POWER, "found '-3 W', which is negative"),
        (0, POWER, "found 0, which is zero"),
        ("0 GB", BYTES, "found '0 GB', which is zero"),
        (float("nan"), TIME, "found nan"),
        (float("inf"), TIME, "found inf"),
        (True, BYTES, "found true"),
        (None, BYTES, "found nothing"),
        ([1], BYTES, "found a list"),
        ({}, BYTES, "found a mapping"),
        ("0.3 B", BYTES, "not a whole number of B"),
        (1.5, BYTES, "not a whole number of B"),
        (850, AREA, "found 850 without a unit; write '850 mm2'"),
        ("1e999 B", BYTES, "too large"),
        ("1e999 GB/s", BYTES_PER_SECOND, "too large"),
        ("1e-999 s", TIME, "too small"),
        ("1e999999999 s", TIME, "found the text"),
    ],
)
def test_what_is_no_quantity_says_what_is_allowed(value, dimension, message):
    with pytest.raises(ValueError, match="found") as caught:
        parse_quantity(value, dimension)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_zero_where_it_is_allowed():
    assert parse_quantity("0 ns", TIME, zero=True) == 0.0
    with pytest.raises(ValueError, match="negative"):
        parse_quantity("-1 ns", TIME, zero=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1024, "1 KiB"),
        (16 * 2**20, "16 MiB"),
        (80 * 10**9, "80 GB"),
        (3 * 2**29, "1536 MiB"),
        (123456789, "117.7 MiB"),
    ],
)
def test_format_bytes(value, text):
    assert format_bytes(value) == text


def test_format_quantities():
    assert format_bytes_per_s(9e11) == "900 GB/s"
    assert format_quantity(1.05e9, FREQUENCY) == "1.05 GHz"
    assert format_quantity(7e-7, TIME) == "700 ns"
    assert format_quantity(0.0, TIME) == "0 s"


@given(st.integers(1, 2**50))
def test_a_formatted_capacity_reads_back_to_four_digits(capacity):
    value, unit = format_bytes(capacity).split()
    read = Fraction(value) * BYTES.units[unit]
    assert abs(read / capacity - 1) <= Fraction(1, 1999)


@given(st.sampled_from(DIMENSIONS), st.floats(1e-9, 1e15))
def test_a_formatted_quantity_reads_back_to_four_digits(dimension, value):
    number, unit = format_quantity(value, dimension).split()
    assert float(Fraction(number) * dimension.units[unit]) == pytest.approx(value, rel=6e-4)


@given(st.sampled_from(DIMENSIONS), st.one_of(st.text(max_size=20), st.floats(), st.integers()))
def test_anything_is_a_positive_quantity_or_a_value_error(dimension, value):
    try:
        result = parse_quantity(value, dimension)
    except ValueError as error:
        result, message = None, str(error)
    assert result > 0 if result is not None else message.startswith("found")
