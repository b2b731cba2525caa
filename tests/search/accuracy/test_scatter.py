"""The picture of predictions has every point in its place."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from accuracy_helpers import step

from archplace.search.accuracy import Prediction
from archplace.search.accuracy.scatter import draw, prepare


def prediction(measured, predicted, **values):
    return Prediction(step=step(step_s=measured, **values), predicted_s=predicted, parts_s={})


POINTS = [
    prediction(1.0, 1.0, id="a", source="first"),
    prediction(10.0, 5.0, id="b & c", source="second"),
    prediction(0.5, 0.7, id="d", source="first"),
]


def test_axes_span_whole_decades_and_sources_keep_their_order():
    found = prepare([*POINTS, Prediction(step=step(id="r"), reason="no", parts_s={})])
    assert (found.low_s, found.high_s) == (0.1, 10.0)
    assert found.sources == ("first", "second")
    assert len(found.points) == 3


def test_every_step_is_a_point_with_its_error():
    picture = draw(prepare(POINTS))
    ElementTree.fromstring(picture)
    titles = re.findall("<title>(.*?)</title>", picture)
    assert titles == ["a: +0.0%", "b &amp; c: -50.0%", "d: +40.0%"]


def test_a_right_prediction_lies_on_the_diagonal():
    picture = draw(prepare(POINTS))
    first = re.search(r'<circle cx="([0-9.]+)" cy="([0-9.]+)"', picture)
    x, y = map(float, first.groups())
    assert x + y == pytest.approx(560.0, abs=0.2)


def test_nothing_priced_leaves_nothing_to_draw():
    with pytest.raises(ValueError, match="nothing to draw"):
        prepare([Prediction(step=step(), reason="no", parts_s={})])
