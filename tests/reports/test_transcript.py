from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from qualcheck.errors import UsageError
from qualcheck.reports.transcript import StepRows, transcript, transcript_text

NAN = float("nan")


def run_of_two(make_run: Any) -> Any:
    return make_run(
        [1, 3],
        rollouts={
            "instruction": ["a", "go to\x1b the ball"],
            "first_fault_step": [-1, 1],
            "gc_imagined": [NAN, 1.0],
            "gc_replayed": [NAN, 0.0],
            "flags": [[], ["duplicate"]],
        },
        steps={
            "tc": [1.0, 1.0, 0.0, NAN],
            "tc_code": ["", "", "agent", "illegal_start"],
            "dl": [1.0, 1.0, 0.0, NAN],
            "dl_rule": ["", "", "step.teleport", ""],
            "err_agent": [0.0, 0.0, 2.0, NAN],
            "reward_error": [0.0, 0.0, 0.25, NAN],
        },
    )


def test_the_transcript_holds_the_rollout_and_its_steps_without_nan(make_run: Any) -> None:
    content = transcript(run_of_two(make_run), 1)
    assert content["instruction"] == "go to\x1b the ball"
    assert content["flags"] == ["duplicate"]
    assert [line["step"] for line in content["steps"]] == [0, 1, 2]
    assert [line["tc"] for line in content["steps"]] == [1.0, 0.0, None]
    assert content["units"]["err_agent"] == "cells"
    assert transcript(run_of_two_again(make_run), 0)["gc_imagined"] is None
    json.dumps(content, allow_nan=False)


def run_of_two_again(make_run: Any) -> Any:
    return run_of_two(lambda *args, **kwargs: make_run(*args, **kwargs, name="again"))


def test_the_text_marks_the_first_fault_and_says_what_failed(make_run: Any) -> None:
    text = transcript_text(transcript(run_of_two(make_run), 1))
    fault = next(line for line in text.splitlines() if "step    1" in line)
    assert "correct no; legal no; agent; breaks step.teleport; agent off by 2 cells; reward off by 0.25" in fault
    assert fault.endswith("<- first fault")
    assert text.count("<- first fault") == 1
    assert "goal imagined yes, replayed no" in text
    assert "correct unknown; legal unknown; illegal_start" in text
    assert "flags: duplicate" in text
    assert "\x1b" not in text


def test_one_step_shows_its_columns_and_their_differences(make_run: Any) -> None:
    rows = StepRows(
        obs=np.array([1.0, 5.0], np.float32),
        next_obs=np.array([3.0, 5.0], np.float32),
        simulated=np.array([2.0, 5.0]),
        action="2 (up)",
        columns=("agent row", "agent column"),
        units=("cells", "cells"),
    )
    content = transcript(run_of_two(make_run), 1, 1, rows)
    assert len(content["steps"]) == 1
    assert content["columns"][0] == {
        "name": "agent row", "unit": "cells", "before": 1.0, "imagined": 3.0, "simulated": 2.0, "difference": 1.0,
        "differs": True,
    }  # fmt: skip
    assert content["columns"][1]["differs"] is False
    text = transcript_text(content)
    assert "action 2 (up)" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("agent row"))
    assert row.split()[2:] == ["1", "3", "2", "1", "cells"]


def test_a_row_that_is_not_known_has_no_difference(make_run: Any) -> None:
    rows = StepRows(np.array([1.0]), np.array([NAN]), None, "0", ("x",), ("m",))
    line = transcript(run_of_two(make_run), 1, 2, rows)["columns"][0]
    assert (line["imagined"], line["simulated"], line["difference"]) == (None, None, None)
    nan = StepRows(np.array([1.0]), np.array([NAN]), np.array([2.0]), "0", ("x",), ("m",))
    line = transcript(run_of_two_again(make_run), 1, 2, nan)["columns"][0]
    assert (line["difference"], line["differs"]) == (None, True)


def test_a_rollout_without_steps_has_a_header_alone(make_run: Any) -> None:
    content = transcript(make_run([0]), 0)
    assert content["steps"] == []
    assert "no steps" in transcript_text(content)


def test_unknown_rollouts_and_steps_name_those_there_are(make_run: Any) -> None:
    run = run_of_two(make_run)
    with pytest.raises(UsageError, match="0 to 1"):
        transcript(run, 2)
    with pytest.raises(UsageError, match="steps 0 to 2"):
        transcript(run, 1, 3)
    with pytest.raises(UsageError, match="steps"):
        transcript(run, 1, -1)
