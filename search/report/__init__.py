"""The report that architects read."""

from archplace.search.report.contents import Contents, document
from archplace.search.report.design import design_document
from archplace.search.report.picks import Pick, difference, picks
from archplace.search.report.write import FILES, write_report

__all__ = [
    "FILES",
    "Contents",
    "Pick",
    "design_document",
    "difference",
    "document",
    "picks",
    "write_report",
]
