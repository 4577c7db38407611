"""Rollout files in and out: one module a layout."""

from qualcheck.io.adjust import looks_standardised, read_statistics
from qualcheck.io.canonical import CanonicalWriter
from qualcheck.io.canonical_reader import read_codes
from qualcheck.io.from_arrays import ArraySource, source_from_arrays
from qualcheck.io.pickles import TrustedPickleWarning, load_pickle
from qualcheck.io.source import FileSource, Source, open_source

__all__ = [
    "ArraySource",
    "CanonicalWriter",
    "FileSource",
    "Source",
    "TrustedPickleWarning",
    "load_pickle",
    "looks_standardised",
    "open_source",
    "read_codes",
    "read_statistics",
    "source_from_arrays",
]
