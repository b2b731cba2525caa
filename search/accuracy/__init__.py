"""How well do predicted training steps agree with measured ones?"""

from archplace.search.accuracy.figures import Figures, figures_of
from archplace.search.accuracy.predict import Prediction, predict
from archplace.search.accuracy.rows import MeasuredStep, read_steps

__all__ = ["Figures", "MeasuredStep", "Prediction", "figures_of", "predict", "read_steps"]
