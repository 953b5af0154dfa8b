"""Strata: local inference of Mixture-of-Experts language models that do not fit the graphics card."""

__version__ = "0.1.0"
