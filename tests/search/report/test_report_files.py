"""The files of a report: CSV and JSON that machines read, one HTML page that needs no network."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from report_helpers import a_result, a_run, a_workload, nothing_feasible, only

from archplace.search.report import FILES, write_report
from archplace.search.run import RunResult
from archplace.search.tables import point_views

_VOID = {"meta", "input", "br", "hr", "wbr"}
_LOADING = {"src", "srcset", "data", "action", "poster", "background"}


class _Page(HTMLParser):
    """Reads a page, notes every nesting error, and keeps what tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.errors: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.headings: list[str] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if len(attributes) < len(attrs):
            self.errors.append(f"repeated attribute in {tag}")
        self.tags.append((tag, attributes))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "script":
            self._script = attributes.get("id") or ""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.errors.append(f"unexpected </{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            assert self._script is not None
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        elif not self.open or self.open[-1] != "style":
            self.text.append(data)
            if self.open and self.open[-1] == "h2":
                self.headings.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def _written(result: RunResult, folder: Path) -> dict[str, str]:
    paths = write_report(result, folder)
    assert [path.name for path in paths] == list(FILES)
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return _written(a_result(), tmp_path_factory.mktemp("report"))


def test_csv_gives_every_number_back_exactly(files: dict[str, str]) -> None:
    rows = list(csv.DictReader(files["front.csv"].splitlines()))
    views = point_views(a_result())
    assert [int(row["id"]) for row in rows] == [3, 2, 1, 0]
    for row, view in zip(rows, views, strict=True):
        for column, value in view.row().items():
            if isinstance(value, float):
                assert float(row[column]) == value, column
            else:
                assert row[column] == str(value), column


def test_csv_columns_carry_si_units(files: dict[str, str]) -> None:
    columns = files["front.csv"].splitlines()[0].split(",")
    assert len(columns) == len(set(columns))
    assert {"throughput_samples_per_s", "area_mm2", "step_s", "hbm_bytes", "clock_hz", "hbm_s"} <= set(columns)
    assert all(re.fullmatch(r"[a-z0-9_]+", column) for column in columns)


def test_json_is_one_document_with_front_counts_picks_and_reasons(files: dict[str, str]) -> None:
    document = json.loads(files["front.json"])
    assert [row["id"] for row in document["front"]] == [3, 2, 1, 0]
    assert document["counts"]["front"] == 4
    assert {pick["name"]: pick["id"] for pick in document["picks"]}["Knee"] == 2
    assert document["picks"][0]["difference_to_baseline"]["area"] == pytest.approx(0.6)
    assert document["baseline"]["name"] == "tpu-v4"
    assert document["reasons"]["placement_options"][0]["count"] == 2
    assert set(document["inputs"]) >= {"choices", "space eight", "workload llama2-7b"}
    assert all(len(content_hash) == 64 for content_hash in document["inputs"].values())
    assert len(document["digest"]) == 64


def test_the_same_run_gives_the_same_bytes_wherever_it_is_written(files: dict[str, str], tmp_path: Path) -> None:
    assert _written(a_result(), tmp_path / "another folder") == files


def test_the_page_is_well_formed_and_labels_its_parts(files: dict[str, str]) -> None:
    page = _Page(files["report.html"])
    assert page.errors == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == names.count("main") == 1
    for _, attributes in page.tags:
        for reference in ("aria-labelledby", "for"):
            assert attributes.get(reference, ids[0]) in ids
    assert names.count("table") == names.count("caption")
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.tags if tag == "th")
    sortable = [attributes["aria-sort"] for tag, attributes in page.tags if tag == "th" and "aria-sort" in attributes]
    assert len(sortable) > 5
    assert set(sortable) == {"none"}
    figures = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(figures) >= 4
    assert all(attributes["aria-label"] for attributes in figures)


def test_every_figure_has_its_data_under_a_fixed_name(files: dict[str, str]) -> None:
    page = _Page(files["report.html"])
    for _, attributes in page.tags:
        if attributes.get("class") == "plot":
            figure = json.loads(page.scripts[f"{attributes['id']}-data"])
            assert figure["data"]
            assert "layout" in figure


def test_a_browser_has_nothing_to_load(files: dict[str, str]) -> None:
    text = files["report.html"]
    assert text.count(get_plotlyjs()) == 1
    own = text.replace(get_plotlyjs(), "")
    assert "http:" not in own
    assert "https:" not in own
    assert "@import" not in own
    assert "url(" not in own
    page = _Page(text)
    for tag, attributes in page.tags:
        assert not _LOADING & attributes.keys(), tag
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert attributes.get("href", "#").startswith("#")
    policies = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    ]


def test_the_page_answers_before_it_tells_the_rest(files: dict[str, str]) -> None:
    page = _Page(files["report.html"])
    assert page.headings == [
        "The answer",
        "The front",
        "Why these designs",
        "Placement and schedule",
        "What was explored",
        "Health checks",
        "All designs on the front",
    ]
    for phrase in ("not sign-off", "+37.5 %", "archplace show DIR 3", "Nothing: every architecture", "−14.1 %"):
        assert phrase in page.words


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    name = "</script><script>alert('x')</script><b>&amp;"
    result = a_result(a_run(a_workload(name), a_workload("two"), name=name))
    assert result.baseline is not None
    result = replace(result, baseline=replace(result.baseline, name=name))
    text = _written(result, tmp_path)["report.html"]
    page = _Page(text)
    assert page.errors == []
    assert page.open == []
    assert name in page.words
    assert name not in text
    assert "alert" not in "".join(page.scripts[""].split(get_plotlyjs()))


def test_the_report_of_a_run_with_nothing_feasible_says_why(tmp_path: Path) -> None:
    files = _written(nothing_feasible(), tmp_path)
    page = _Page(files["report.html"])
    assert page.errors == []
    assert "Nothing is feasible: none of 8 architectures meets memory and budgets" in page.words
    assert "needs at least 90.1 GB per device" in page.words
    assert "The run file names no baseline accelerator" not in page.words
    assert files["front.csv"] == "id\n"
    assert json.loads(files["front.json"])["front"] == []


def test_a_front_of_one_design_has_a_report(tmp_path: Path) -> None:
    files = _written(only(a_result(with_baseline=False), 2), tmp_path)
    page = _Page(files["report.html"])
    assert page.errors == []
    assert "Fastest, Best per area, Smallest" in page.words
    assert "No comparison: The run file names no baseline accelerator" in page.words
    assert len(files["front.csv"].splitlines()) == 2


def test_a_full_disk_leaves_the_earlier_report_whole(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(a_result(), tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("archplace.search.report.write.os.fsync", full)
    from archplace.arch_configs.errors import StoreError

    with pytest.raises(StoreError, match="No space left on device"):
        write_report(only(a_result(), 2), tmp_path)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == files


def test_the_page_s_style_and_script_are_installed() -> None:
    import tomllib

    root = Path(__file__).parents[3]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    kinds = settings["package-data"].get("archplace.search.report", [])
    assert {"*.css", "*.js"} <= set(kinds)
