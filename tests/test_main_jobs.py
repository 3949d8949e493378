"""The benchmark main_jobs: its commands are those of the pages, and a failure is not hidden."""

import shlex

import pytest
import srsly
import typer
from commands import unknown_options
from tiny import needs

from benchmarks import main_jobs, record


@needs("curation")
def test_commands_have_the_options_that_are_used():
    jobs = main_jobs.jobs()
    typed = [line for job in jobs for line in job.typed.replace("; ", " && ").split(" && ")]
    calls = [line for line in typed if line.startswith("bioel ")]
    assert len(calls) > 10
    for line in calls:
        assert unknown_options(shlex.split(line.partition(" 2>")[0])[1:]) == set(), line
    assert jobs[0].typed.startswith("python -m spacy project run all . --vars.corpus bc5cdr ")


@pytest.mark.parametrize("short", [False, True])
def test_a_job_that_fails_is_shown_and_recorded(tmp_path, monkeypatch, capsys, short):
    scores = [{"protocol": "mention", "metric": "f1", "label": x, "value": 81} for x in ("", "A")]
    srsly.write_json(tmp_path / "scores.json", scores)
    jobs = [
        main_jobs.Job("long", "exit 1"),
        main_jobs.Job("failing", "test -f project.yml && echo a reason >&2 && exit 3"),
        main_jobs.Job("good", f"cp {tmp_path}/scores.json dev.json", "dev.json"),
    ]
    monkeypatch.setattr(main_jobs, "jobs", lambda: jobs)
    monkeypatch.setattr(main_jobs, "prepare", lambda *_: None)
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    with pytest.raises(typer.Exit) as exited:
        main_jobs.main_jobs(tmp_path, short=short)
    assert exited.value.exit_code == 1
    assert "a reason" in capsys.readouterr().err
    rows = srsly.read_json(tmp_path / "main_jobs.json")
    found = [(row["system"], row["metric"], row.get("status")) for row in rows]
    expected = [("failing", "seconds", 3), ("good", "seconds", 0), ("good", "mention f1", None)]
    assert found == [("long", "seconds", 1)] * (not short) + expected
