"""Explanations: named hypotheses on a whole file, each tested by scoring a sample again under the change it names.

An explanation never changes a verdict. See `qualcheck.explaining.explain`.
"""

from __future__ import annotations
