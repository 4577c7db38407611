"""One rollout step by step, and one step column by column: what `qualcheck inspect` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from qualcheck.errors import UsageError
from qualcheck.reports.tables import printable
from qualcheck.table import UNITS, Run
from qualcheck.types import AnyArray

HEADER = (
    "source", "source_rollout", "source_step", "env", "level", "generator", "instruction", "task", "task_released",
    "start", "length", "gc_imagined", "gc_replayed", "gc_imagined_released", "gc_replayed_released", "gc_code",
    "consistency", "consistency_replayed", "trivial", "correctness", "legality", "dl_row0", "dl_row0_rule",
    "first_fault_step", "first_divergence_step", "flags",
)  # fmt: skip
STEP = ("step", "tc", "tc_strict", "tc_error", "tc_code", "seeding", "dl", "dl_rule", "reward_error", "skill")


@dataclass(frozen=True)
class StepRows:
    """The rows around one step, as the caller read and simulated them."""

    obs: AnyArray  # (O,)
    next_obs: AnyArray | None  # (O,) as imagined; None where the file does not show it
    simulated: AnyArray | None  # (O,) None where the simulator cannot take on `obs`
    action: str  # as the reader should see it
    columns: Sequence[str]  # (O,) names
    units: Sequence[str]  # (O,) "" where a column has none


def transcript(run: Run, rollout: int, step: int | None = None, rows: StepRows | None = None) -> dict[str, Any]:
    """Everything known of one rollout, fit for JSON: None where nothing was verified, never NaN.

    Args:
        rollout: the running index of the run.
        step: give that step alone, with `rows` where the caller has them.

    Raises:
        UsageError: the run has no such rollout, or the rollout no such step.
    """
    numbers = run.rollouts(["rollout"])["rollout"].to_numpy()
    at = np.flatnonzero(numbers == rollout)
    if not len(at):
        held = f"{numbers.min()} to {numbers.max()}" if len(numbers) else "none"
        raise UsageError(f"{run.path}: no rollout {rollout}; it holds {held}. Name one of these.")
    first, end = (int(run.offsets()[at[0] + after]) for after in (0, 1))
    header = run.rollouts(list(HEADER)).slice(int(at[0]), 1).to_pylist()[0]
    table = run.transitions()
    blocks = [name for name in table.column_names if name.startswith("err_")]
    part = table.select([*STEP, *blocks]).slice(first, end - first)
    if step is not None:
        part = part.filter(pc.equal(part["step"], step))
        if not part.num_rows:
            raise UsageError(
                f"{run.path}: rollout {rollout} has no step {step}; it has steps 0 to {end - first - 1}. "
                "Leave the step out to see them all."
            )
    metadata = table.schema.metadata or {}
    units = {name: _unit(metadata, name) for name in ("tc_error", "reward_error", *blocks)}
    result = {
        "rollout": int(rollout),
        **{name: _plain(value) for name, value in header.items()},
        "units": units,
        "steps": [{name: _plain(value) for name, value in line.items()} for line in part.to_pylist()],
    }
    if rows is not None:
        result["action"] = rows.action
        result["columns"] = _compare(rows)
    return result


def transcript_text(content: dict[str, Any]) -> str:
    """The same for a terminal, ending in a newline; the first fault is marked."""
    lines = [f"rollout {content['rollout']}: {content['source']}, rollout {content['source_rollout']} there"]
    if content["source_step"]:
        lines[0] += f", cut at step {content['source_step']}"
    instruction = "none" if content["instruction"] is None else repr(content["instruction"])
    lines += [
        f"  {content['env']}, level {content['level']}, generator {content['generator'] or 'unknown'}",
        f"  instruction {instruction}, task {content['task'] or 'not found'}"
        + (f" (released: {content['task_released']})" if content["task_released"] != content["task"] else ""),
        f"  goal imagined {_verdict(content['gc_imagined'])}, replayed {_verdict(content['gc_replayed'])}; "
        f"released predicate: {_verdict(content['gc_imagined_released'])}, {_verdict(content['gc_replayed_released'])}"
        + (f" ({content['gc_code']})" if content["gc_code"] else ""),
        f"  sub-goals {_number(content['consistency'])} imagined, {_number(content['consistency_replayed'])} replayed"
        + ("; goal true at the start" if content["trivial"] else ""),
        f"  correct steps {_number(content['correctness'])}, legal steps {_number(content['legality'])}"
        + (f"; first row breaks {content['dl_row0_rule']}" if content["dl_row0_rule"] else ""),
        f"  starts at a {content['start']}, {content['length']} steps; "
        f"first fault {_step(content['first_fault_step'])}, "
        f"replay leaves the rows {_step(content['first_divergence_step'])}",
        f"  flags: {', '.join(content['flags'] or []) or 'none'}",
        "",
    ]
    lines += [_step_line(line, content) for line in content["steps"]]
    if not content["steps"]:
        lines.append("no steps")
    if "columns" in content:
        lines += ["", f"action {content['action']}", *_column_lines(content["columns"])]
    return "\n".join(printable(line) for line in lines) + "\n"


def _compare(rows: StepRows) -> list[dict[str, Any]]:
    """Each column before the action, after it as imagined and as simulated, and imagined - simulated."""
    lines = []
    for index, (name, unit) in enumerate(zip(rows.columns, rows.units, strict=True)):
        imagined = None if rows.next_obs is None else rows.next_obs[index].item()
        simulated = None if rows.simulated is None else rows.simulated[index].item()
        gap = None if imagined is None or simulated is None else float(imagined) - float(simulated)
        line = {"before": rows.obs[index].item(), "imagined": imagined, "simulated": simulated, "difference": gap}
        # NaN in either row is a difference, though JSON has no number for it
        differs = gap is not None and gap != 0
        lines.append({"name": name, "unit": unit, **{k: _plain(v) for k, v in line.items()}, "differs": differs})
    return lines


def _column_lines(columns: list[dict[str, Any]]) -> list[str]:
    rows = [("column", "before", "imagined", "simulated", "difference")]
    for line in columns:
        gap = "" if not line["differs"] else f"{_number(line['difference'])} {line['unit']}".rstrip()
        rows.append((line["name"], *(_number(line[key]) for key in ("before", "imagined", "simulated")), gap))
    size = max(len(row[0]) for row in rows)
    return [f"  {row[0]:<{size}}  {row[1]:>10}  {row[2]:>10}  {row[3]:>10}  {row[4]}".rstrip() for row in rows]


def _step_line(line: dict[str, Any], content: dict[str, Any]) -> str:
    parts = [f"correct {_verdict(line['tc'])}", f"legal {_verdict(line['dl'])}"]
    if line["tc_code"]:
        parts.append(line["tc_code"])
    if line["dl_rule"]:
        parts.append(f"breaks {line['dl_rule']}")
    for name, value in line.items():
        if name.startswith("err_") and value:
            parts.append(f"{name.removeprefix('err_')} off by {_number(value)} {content['units'][name]}".rstrip())
    if line["reward_error"]:
        parts.append(f"reward off by {_number(line['reward_error'])}")
    mark = "   <- first fault" if line["step"] == content["first_fault_step"] else ""
    return f"  step {line['step']:>4}  {'; '.join(parts)}{mark}"


def _unit(metadata: dict[bytes, bytes], column: str) -> str:
    return metadata.get(f"unit.{column}".encode(), UNITS.get(column, "").encode()).decode()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _verdict(value: float | None) -> str:
    """yes, no, unknown, or the share of restarts."""
    if value is None:
        return "unknown"
    return {0.0: "no", 1.0: "yes"}.get(value, f"{value:.2f}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _step(value: int) -> str:
    return "nowhere" if value < 0 else f"at step {value}"
