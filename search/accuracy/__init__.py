"""How well do predicted training steps agree with measured ones?"""

from archplace.search.accuracy.figures import Figures, figures_of
from archplace.search.accuracy.predict import Prediction, predict
from archplace.search.accuracy.rows import MeasuredStep, PublishedStep, UnreadStep, read_rows, read_steps

__all__ = [
    "Figures",
    "MeasuredStep",
    "Prediction",
    "PublishedStep",
    "UnreadStep",
    "figures_of",
    "predict",
    "read_rows",
    "read_steps",
]
