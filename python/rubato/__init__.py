"""Rubato: elastic, timed, distributed machine learning."""
import importlib

TYPE_CHECKING = False  # for type checkers alone: typing takes a while
if TYPE_CHECKING:
    from . import data, team
    from ._array import copied
    from ._call import (BusyError, ConfigError, DataError, DiskError, MissingError, PeerError, RubatoError,
                        UnsupportedError)
    from ._trace import Trace, trace
    from .command import ask, explain, plan, program
    from .model import Model, Port, load
    from .run import Run, train

# What is loaded when it is first used: the library, numpy and the standard library's larger modules take their time.
_PLACES = {
    "_call": ("BusyError", "ConfigError", "DataError", "DiskError", "MissingError", "PeerError", "RubatoError",
              "UnsupportedError"),
    "_array": ("copied",), "_trace": ("Trace", "trace"), "command": ("ask", "explain", "plan", "program"), "model": ("Model", "Port", "load"),
    "run": ("Run", "train"), "data": (), "team": (), "torch": (),
}

__all__ = ["BusyError", "ConfigError", "DataError", "DiskError", "MissingError", "Model", "PeerError", "Port",
           "RubatoError", "Run", "Trace", "UnsupportedError", "ask", "copied", "data", "explain", "load", "plan", "program",
           "trace", "train"]


def __getattr__(name):
    for place, names in _PLACES.items():
        if name == place:
            return importlib.import_module("." + place, __name__)
        if name in names:
            value = globals()[name] = getattr(importlib.import_module("." + place, __name__), name)
            return value
    raise AttributeError("module 'rubato' has no attribute '%s'" % name)


def __dir__():
    return sorted({*globals(), *__all__})
