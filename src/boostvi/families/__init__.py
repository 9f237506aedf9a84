"""Families of components. Add one: write its file, then one line here."""

from boostvi.families.base import Family
from boostvi.families.diagonal_laplace import DiagonalLaplace
from boostvi.families.diagonal_normal import DiagonalNormal
from boostvi.families.diagonal_student_t import DiagonalStudentT
from boostvi.families.linear import FullRankNormal, FullRankStudentT, LinearFamily, ProductStudentT
from boostvi.families.low_rank_normal import LowRankNormal

FAMILIES = {
    cls.name: cls
    for cls in (
        DiagonalNormal, DiagonalLaplace, DiagonalStudentT, LowRankNormal, FullRankNormal, FullRankStudentT,
        ProductStudentT,
    )
}  # fmt: skip

__all__ = [
    "FAMILIES",
    "DiagonalLaplace",
    "DiagonalNormal",
    "DiagonalStudentT",
    "Family",
    "FullRankNormal",
    "FullRankStudentT",
    "LinearFamily",
    "LowRankNormal",
    "ProductStudentT",
]
