"""The commands put together, and what is printed when one goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from typing import Annotated

import typer

import qualcheck
from qualcheck.cli.calibrate import calibrate
from qualcheck.cli.collect import collect
from qualcheck.cli.convert import convert
from qualcheck.cli.demo import demo
from qualcheck.cli.envs import envs
from qualcheck.cli.filter import filter_
from qualcheck.cli.inspect import inspect
from qualcheck.cli.merge import merge
from qualcheck.cli.report import report
from qualcheck.cli.score import score
from qualcheck.cli.selftest import selftest
from qualcheck.cli.validate import validate
from qualcheck.errors import QualcheckError

app = typer.Typer(
    name="qualcheck",
    help="Replay imagined rollouts in the real simulator, score them, filter them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("score")(score)
app.command("merge")(merge)
app.command("filter")(filter_)
app.command("report")(report)
app.command("calibrate")(calibrate)
app.command("convert")(convert)
app.command("inspect")(inspect)
app.command("collect")(collect)
app.command("selftest")(selftest)
app.command("validate")(validate)
app.command("envs")(envs)
app.command("demo")(demo)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"qualcheck {qualcheck.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options of every command."""


def _terminated(number: int, _frame: object) -> None:
    """Leave as on Ctrl-C, so that unfinished outputs are removed and workers end; batch systems send this first."""
    sys.exit(128 + number)


def run() -> None:
    """Run the command line; a user's mistake prints one red line and sets the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    warnings.showwarning = lambda message, *_rest, **_more: typer.secho(f"warning: {message}", fg="yellow", err=True)
    try:
        app()
    except QualcheckError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has gone
        sys.exit(1)
    except MemoryError:
        _fail("not enough memory. Score fewer files at once.", 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}", 1)
    except Exception as error:
        if os.environ.get("QUALCHECK_TRACEBACK"):
            traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno}"  # noqa: PTH119 - a name for a message, not a path
        _fail(
            f"this is a fault of qualcheck ({type(error).__name__} at {where}: {error}). "
            "Please report it; QUALCHECK_TRACEBACK=1 shows more.",
            1,
        )


def _fail(message: str, code: int) -> None:
    typer.secho(f"error: {' '.join(message.split())}", fg="red", err=True)
    sys.exit(code)
