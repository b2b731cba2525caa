"""The YAML loader: PyYAML's traps, places, and every way in which a file can be unusable."""

import math
from enum import StrEnum

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from archplace.arch_configs.errors import ConfigError
from archplace.arch_configs.files import FileModel, load, load_many, parse_document, parse_text, read_document
from archplace.arch_configs.units import Bytes, Hertz


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Item(FileModel):
    rows: int
    share: float = 0.5


class Shape(FileModel):
    name: str = "x"
    size: Bytes = 1
    clock: Hertz = 1.0
    colour: Colour = Colour.RED
    flag: bool = False
    items: tuple[Item, ...] = ()
    by_name: dict[str, Item] | None = None


class File(FileModel):
    shape: Shape


def scalar(text):
    return parse_text(f"a: {text}").data["a"]


def problems(text, schema=File):
    """What is wrong with ``text``, line by line; nothing if it is accepted."""
    try:
        parse_document(parse_text(text, "f.yaml"), schema)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


# What PyYAML makes of the same text is said in the last column: the reason for a loader of our own.
@pytest.mark.parametrize(
    ("text", "value", "pyyaml"),
    [
        ("614e9", 614e9, "614e9"),
        ("1e-12", 1e-12, "1e-12"),
        ("1E5", 1e5, "1E5"),
        ("no", "no", False),
        ("on", "on", True),
        ("Yes", "Yes", True),
        ("1:30", "1:30", 90),
        ("1_000", "1_000", 1000),
        ("0b11", "0b11", 3),
    ],
)
def test_scalars_that_pyyaml_reads_otherwise(text, value, pyyaml):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)
    assert yaml.safe_load(f"a: {text}")["a"] == pyyaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+4", 4),
        ("0x1F", 31),
        ("0o17", 15),
        (".5", 0.5),
        ("5.", 5.0),
        ("-1.5e+3", -1500.0),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("'12'", "12"),
        ('"true"', "true"),
        ("2024-01-31", "2024-01-31"),
        ("=", "="),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("!!float 3", 3.0),
        ("!!str 3", "3"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_nan_is_read_as_nan():
    assert math.isnan(scalar(".nan"))


def test_a_leading_zero_is_refused_since_it_is_octal_or_decimal():
    assert problems("shape:\n  items: [{rows: 010}]") == [
        "f.yaml:2:18: shape.items[0].rows: found 010; a leading zero is ambiguous (octal or decimal): write 10, or 0o… "
        "for octal, or quote it if it is text"
    ]


def test_anchors_and_merges_are_expanded_and_explicit_keys_win():
    text = "base: &base {a: 1, b: {c: 2}}\nx:\n  <<: *base\n  a: 3\ny:\n  <<: [{d: 4}, *base]\nz: *base\n"
    data = parse_text(text).data
    assert data["x"] == {"a": 3, "b": {"c": 2}}
    assert data["y"] == {"a": 1, "b": {"c": 2}, "d": 4}
    assert data["z"] == {"a": 1, "b": {"c": 2}}


def test_all_problems_at_once_each_with_its_place():
    text = (
        "shape:\n"
        "  nam: chip\n"
        "  size: 3 GHz\n"
        "  clock: -1\n"
        "  colour: gren\n"
        "  flag: yes\n"
        "  items:\n"
        "    - rows: 1.0\n"
        "      share: .nan\n"
        "    - {share: '0.5'}\n"
        "    - 7\n"
        "  by_name:\n"
        "    big: {rows: true}\n"
        "  flag: true\n"
    )
    assert problems(text) == [
        "f.yaml:2:3: shape.nam: unknown key 'nam'; did you mean 'name'? allowed: name, size, clock, colour, flag, "
        "items, by_name",
        "f.yaml:3:9: shape.size: found the unit 'GHz'; allowed units of capacity: B, kB, MB, GB, TB, KiB, MiB, GiB, "
        "TiB",
        "f.yaml:4:10: shape.clock: found -1, which is negative; allowed: frequency such as '1.05 GHz' or hertz",
        "f.yaml:5:11: shape.colour: found the text 'gren'; did you mean 'green'? allowed: red, green",
        "f.yaml:6:9: shape.flag: found the text 'yes'; allowed: true or false",
        "f.yaml:8:13: shape.items[0].rows: found 1.0; allowed: a whole number",
        "f.yaml:9:14: shape.items[0].share: found nan; allowed: a finite number",
        "f.yaml:10:7: shape.items[1].rows: the key 'rows' is missing in 'shape.items[1]'; add 'rows: …'",
        "f.yaml:10:15: shape.items[1].share: found the text '0.5'; allowed: a number (without quotes or unit)",
        "f.yaml:11:7: shape.items[2]: found 7; allowed: a mapping",
        "f.yaml:13:17: shape.by_name.big.rows: found true; allowed: a whole number",
        "f.yaml:14:3: shape.flag: the key stands twice, first at f.yaml:6:3; remove one of them",
    ]


def test_a_good_file_is_an_instance_with_lists_as_tuples_and_text_as_enumeration():
    shape = parse_document(parse_text("shape: {colour: green, items: [{rows: 2}], size: 1 KiB}"), File).shape
    assert shape.colour is Colour.GREEN
    assert shape.items == (Item(rows=2),)
    assert shape.size == 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: found an empty file; allowed: a mapping with the keys shape"),
        ("# only a comment\n", "f.yaml: found an empty file; allowed: a mapping with the keys shape"),
        ("- 1\n", "f.yaml:1:1: found a list; allowed: a mapping with the keys shape"),
        ("{}", "f.yaml:1:1: shape: the key 'shape' is missing in the file; add 'shape: …'"),
        ("shape:\n\tname: x", "f.yaml:2:1: not valid YAML: while scanning for the next token, found character '\\t' "
         "that cannot start any token (YAML is indented with spaces, never with tabs)"),
        ("shape: [", "f.yaml:1:9: not valid YAML: while parsing a flow node, expected the node content, but found "
         "'<stream end>'"),
        ("a: 1\n--- 2\n", "f.yaml:2:1: not valid YAML: expected a single document in the stream, but found another "
         "document"),
        ("shape: *x", "f.yaml:1:8: not valid YAML: found undefined alias 'x'"),
        ("shape: &x\n  name: *x", "f.yaml:1:8: an alias (*name) refers to the value that contains it"),
        ("shape: {name: \x07}", "f.yaml:1:15: found the character '\\x07', which is not allowed in YAML"),
        ("? [1]\n: 2", "f.yaml:1:3: found a list or mapping as a key; keys must be plain text"),
        ("shape: {name: !!python/name:os.system x}", "f.yaml:1:15: shape.name: found 'x' with the tag "
         "'tag:yaml.org,2002:python/name:os.system'; remove the tag"),
    ],
)  # fmt: skip
def test_unusable_text_gives_one_line_with_its_place(text, message):
    found = problems(text)
    assert message in found
    assert all("\n" not in line for line in found)


def test_text_that_is_not_unicode_is_refused():
    (problem,) = problems('shape: {name: "\\ud800"}')
    assert problem == "f.yaml:1:15: shape.name: found '\\ud800', which is not valid Unicode text"
    problem.encode("utf-8")


@pytest.mark.parametrize("text", ['a: "\\U00110000"', 'a: "\\Uffffffff"', f"%YAML {'9' * 5000}.1\n---\na: 1"])
def test_escapes_and_versions_that_pyyaml_chokes_on(text):
    (problem,) = problems(text)
    assert problem.startswith("f.yaml:1:")
    assert "not valid YAML" in problem


def test_an_alias_bomb_is_refused():
    lines = ["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (problem,) = problems("\n".join(lines))
    assert "expands to more than 1,000,000 values" in problem


def test_a_bomb_of_empty_merges_is_refused():
    lines = ["a0: &a0 {}"] + [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    (problem,) = problems("\n".join(lines))
    assert "expands to more than 1,000,000 values" in problem


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "a: " + "- " * 3000])
def test_deep_nesting_is_refused(text):
    (problem,) = problems(text)
    assert "not valid YAML" in problem or "levels of nesting" in problem


def test_a_number_of_thousands_of_digits_is_refused():
    (problem,) = problems(f"shape: {{clock: {'9' * 5000}}}")
    assert problem.startswith("f.yaml:1:16: shape.clock: found a number of 5000 characters")


def test_a_file_that_is_missing_suggests_its_neighbour(tmp_path):
    (tmp_path / "chip.yaml").write_text("shape: {}")
    with pytest.raises(ConfigError, match=r"chp.yaml: no such file; did you mean '.*chip.yaml'\?"):
        load(tmp_path / "chp.yaml", File)


def test_a_folder_that_is_missing(tmp_path):
    with pytest.raises(ConfigError, match="no such file: there is no folder"):
        load(tmp_path / "none" / "chip.yaml", File)


def test_a_directory(tmp_path):
    with pytest.raises(ConfigError, match="found a directory; a YAML file is needed"):
        load(tmp_path, File)


def test_a_name_that_cannot_be_one():
    with pytest.raises(ConfigError, match="cannot be a file's name"):
        load("a\0b.yaml", File)


def test_bytes_that_are_not_utf_8(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"shape:\n  name: caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load(path, File)
    assert str(caught.value) == f"{path}:2:12: found the byte 0xe9, which is not UTF-8 text; save the file as UTF-8"


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfshape:\r\n  name: caf\xc3\xa9\r\n")
    assert load(path, File).shape.name == "café"


def test_a_file_that_never_ends_is_refused():
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        read_document("/dev/zero")


def test_several_files_report_all_their_problems(tmp_path):
    paths = [tmp_path / f"{i}.yaml" for i in range(3)]
    for path, text in zip(paths, ["shape: {nam: 1}", "shape: {}", "shap: {}"], strict=True):
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_many(paths, File)
    assert {problem.place.split(":")[0] for problem in caught.value.problems} == {str(paths[0]), str(paths[2])}
    assert load_many(paths[1:2], File) == [File(shape=Shape())]


def test_read_document_reports_duplicate_keys(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(ConfigError, match=r"twice.yaml:3:1: a: the key stands twice, first at .*twice.yaml:1:1"):
        read_document(path)


def test_places_of_keys_and_values():
    document = parse_text("a:\n  - b: 1\n    c: [2, 3]\n", "f")
    assert document.place(("a", 0, "b")) == "f:2:8"
    assert document.place(("a", 0, "b"), at_key=True) == "f:2:5"
    assert document.place(("a", 0, "c", 1)) == "f:3:12"
    assert document.place(("a",)) == "f:1:1"
    assert document.place(("a", 0, "none")) == "f:2:5"


YAML_LIKE = st.lists(
    st.sampled_from([*"abc:-[]{}&*!|>'\"%@`#?,\n\t 019.~<=_\\e+", "\n  ", ": ", "- ", "&a ", "*a", "<<: ", "!!int ",
                     "shape", "items", "rows", "1e9", ".nan", "0x", "---\n", "\ud7ff", "\x85", "\\ud800", "GB"]),
    max_size=40,
).map("".join)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(YAML_LIKE, st.text(max_size=80)))
def test_any_text_is_data_or_a_config_error(text):
    assert all(line.startswith("f.yaml") and "\n" not in line for line in problems(text))


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=60))
def test_any_bytes_are_data_or_a_config_error(content, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    places = []
    try:
        load(path, File)
    except ConfigError as error:
        places = [problem.place for problem in error.problems]
    assert all(place.startswith(str(path)) for place in places)


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(allow_nan=False),
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5), inner, max_size=4),
    ),
    max_leaves=12,
)


class _CoreDumper(yaml.SafeDumper):
    """Quotes all text, since PyYAML writes text such as 1e9 plainly (and reads it back as text)."""


_CoreDumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@settings(max_examples=200, deadline=None)
@given(PLAIN)
def test_what_is_written_is_read_back(data):
    assert parse_text(yaml.dump({"data": data}, Dumper=_CoreDumper, allow_unicode=True)).data == {"data": data}
