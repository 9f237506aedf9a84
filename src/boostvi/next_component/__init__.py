"""Line 3 of Algorithm 1. Add an objective: write its file, then one line here."""

from boostvi.next_component.adam import Adam
from boostvi.next_component.base import FirstComponent, NextComponent, Proposal
from boostvi.next_component.explore import Explore
from boostvi.next_component.first import LaplaceApproximation, PlainVI, RandomFirst
from boostvi.next_component.lbfgs import LBFGS
from boostvi.next_component.mixture_elbo import MixtureElbo
from boostvi.next_component.race import Race
from boostvi.next_component.random import RandomComponent
from boostvi.next_component.residual_elbo import ResidualElbo
from boostvi.next_component.search import OPTIMISERS

NEXT_COMPONENTS = {cls.name: cls for cls in (ResidualElbo, MixtureElbo, Explore, RandomComponent)}
FIRST_COMPONENTS = {cls.name: cls for cls in (PlainVI, LaplaceApproximation, Race, RandomFirst)}

__all__ = [
    "FIRST_COMPONENTS",
    "LBFGS",
    "NEXT_COMPONENTS",
    "OPTIMISERS",
    "Adam",
    "Explore",
    "FirstComponent",
    "LaplaceApproximation",
    "MixtureElbo",
    "NextComponent",
    "PlainVI",
    "Proposal",
    "Race",
    "RandomComponent",
    "RandomFirst",
    "ResidualElbo",
]
