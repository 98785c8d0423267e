"""What the program answers in JSON, as Python values."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from . import _call


def program():
    """The path of the program `rubato` that belongs to this package."""
    beside = os.path.join(os.path.dirname(sys.executable), "rubato")
    packed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "rubato")  # of a wheel with its libraries
    inside = os.path.join(sys.prefix, "bin", "rubato")
    found = os.environ.get("RUBATO_PROGRAM") or next(
        (p for p in (packed, beside, inside) if os.access(p, os.X_OK)), None) or shutil.which("rubato")
    if found is None:
        raise _call.MissingError("the program rubato is not beside this Python; set RUBATO_PROGRAM to its path")
    return found


_ERRORS = {2: _call.ConfigError, 65: _call.DataError, 66: _call.MissingError, 69: _call.PeerError,
           73: _call.DiskError, 74: _call.DiskError, 75: _call.BusyError, 77: _call.DiskError, 78: _call.ConfigError}


def ask(*words):
    """Run `rubato WORDS --json`; returns what it prints, parsed. Raises by its exit code, with its sentence."""
    answers = _documents(_run(*words, "--json").strip())
    return answers[0] if len(answers) == 1 else answers


def explain(run, *words, text=False):
    """What was decided in a run and why, predicted beside measured: `rubato explain RUN WORDS --json` as a dict.

    Keys end with the unit of their value: _s seconds, _bytes, _share of 1, _usd. `text`: the text for people instead.
    """
    return _run("explain", run, *words) if text else ask("explain", run, *words)


def _run(*words):
    """What the program prints. Raises by its exit code, with its sentence."""
    p = subprocess.Popen([program(), *map(os.fspath, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = _call.heard(p.communicate)
    except BaseException:
        p.kill()  # nobody asks any more
        raise
    if p.returncode != 0:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        sentence = lines[-1] if lines else "rubato %s ended with code %d" % (words[0], p.returncode)
        raise _ERRORS.get(p.returncode, _call.RubatoError)(sentence)
    return out.decode("utf-8", "replace")


def _documents(printed):
    """The JSON values of a text, which stand one after the other."""
    decoder, at, out = json.JSONDecoder(), 0, []
    while at < len(printed):
        value, at = decoder.raw_decode(printed, at)
        out.append(value)
        while printed[at:at + 1].isspace():
            at += 1
    return out


def plan(policy, question, **settings):
    """The plan of a policy for a question, a dict, or for the path of a file with it; settings: keys to change."""
    sets = [w for k, v in settings.items() for w in ("--set", "%s=%s" % (k, v))]
    if isinstance(question, (str, os.PathLike)):
        return ask("plan", question, policy, *sets)
    with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="rubato-") as f:
        json.dump(question, f)
        f.flush()
        return ask("plan", f.name, policy, *sets)
