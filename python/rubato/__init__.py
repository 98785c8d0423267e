"""Rubato: elastic, timed, distributed machine learning."""
from . import data
from ._call import (BusyError, ConfigError, DataError, DiskError, MissingError, PeerError, RubatoError,
                    UnsupportedError)
from .command import ask, plan, program
from .model import Model, Port, load
from .run import Run, train

__all__ = ["BusyError", "ConfigError", "DataError", "DiskError", "MissingError", "Model", "PeerError", "Port",
           "RubatoError", "Run", "UnsupportedError", "ask", "data", "load", "plan", "program", "train"]
