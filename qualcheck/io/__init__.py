"""Rollout files in and out: one module a layout."""

from qualcheck.io.canonical import CanonicalWriter
from qualcheck.io.canonical_reader import read_codes
from qualcheck.io.npy import TrustedPickleWarning
from qualcheck.io.pickles import load_pickle
from qualcheck.io.source import Source, open_source

__all__ = ["CanonicalWriter", "Source", "TrustedPickleWarning", "load_pickle", "open_source", "read_codes"]
