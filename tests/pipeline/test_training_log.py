"""The log of training runs, and their page."""

import json
import math
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from browser import check_page, chromium
from spacy import registry
from spacy.language import Language
from tiny import DETECTOR, LINKER, blank

ROWS = """\
 update     epoch   loss mentions   loss linker   mention f    link f     score      time      left
-------   -------   -------------   -----------   ---------   -------   -------   -------   -------
  0/200         0            9.00          1.50        0.00         -      0.00      0:04         -
 20/200         2          207.37         28.87       81.25     40.00     60.62      1:00      9:00
200/200        19           12.00          3.00       90.00     50.00     70.00   1:01:40      0:00
"""


def pipeline() -> Language:
    nlp = blank()
    nlp.add_pipe("bioel_mentions", config=DETECTOR)
    nlp.add_pipe("bioel_linker", config=LINKER)
    weights = {"bioel_mention_f": 0.5, "bioel_mention_p": 0.0, "bioel_link_f": 0.5, "x": None}
    settings = {"max_steps": 200, "frozen_components": [], "score_weights": weights}
    nlp.config["training"].update(settings)
    return nlp


def info(step: int, epoch: int, seconds: int, losses: tuple[float, float], **scores: Any) -> dict:
    return {
        "step": step,
        "epoch": epoch,
        "seconds": seconds,
        "losses": dict(zip(["bioel_mentions", "bioel_linker"], losses, strict=True)),
        "score": scores.pop("score"),
        "other_scores": scores,
    }


def test_columns_have_names_of_their_own_and_the_time_that_is_left():
    make = registry.loggers.get("spacy-bioel.ConsoleLog.v1")
    out = StringIO()
    log, close = make()(pipeline(), stdout=out)
    log(info(0, 0, 4, (9, 1.5), score=0.0, bioel_mention_f=0.0))
    log(None)
    log(info(10, 1, 9, (9, 1.5), score=None))
    log(info(20, 2, 60, (207.37, 28.87), score=0.60625, bioel_mention_f=0.8125, bioel_link_f=0.4))
    log(info(200, 19, 3700, (12, 3), score=0.7, bioel_mention_f=0.9, bioel_link_f=0.5))
    close()
    assert [row.rstrip() for row in out.getvalue().splitlines()] == ROWS.splitlines()


SVG = "{http://www.w3.org/2000/svg}"


def open_page(path: Path, *, done: int = 0) -> tuple[Any, Any]:
    nlp = pipeline()
    nlp.config["training"]["before_update"] = {"done": done} if done else None
    make = registry.loggers.get("spacy-bioel.TrainingPage.v1")
    return make(str(path))(nlp, stdout=StringIO())


def points_of(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each line of the page, by its name."""
    text = path.read_text("utf8")
    main = text[text.index("<main>") : text.index("</main>") + len("</main>")]
    return {
        line.attrib["data-name"]: [
            (float(c.attrib["data-x"]), float(c.attrib["data-y"]))
            for c in line.iter(f"{SVG}circle")
        ]
        for line in ElementTree.fromstring(main).iter(f"{SVG}g")
    }


def test_the_page_is_whole_after_each_evaluation(tmp_path):
    path = tmp_path / "metrics" / "training.html"
    log, close = open_page(path)
    assert not path.exists()
    log(info(0, 0, 4, (9, 1.5), score=0.0, bioel_mention_f=0.0))
    assert "Training is running." in path.read_text("utf8")
    assert points_of(path)["mentions"] == [(0, 9)]
    log(info(10, 1, 9, (9, 1.5), score=None))
    log(None)
    log(info(20, 2, 60, (200, 30), score=0.6, bioel_mention_f=0.8, bioel_link_f=0.4))
    log(info(40, 4, 90, (100, 20), score=0.55, bioel_mention_f=0.7, bioel_link_f=0.4))
    points = points_of(path)
    # Losses are sums since the previous evaluation.
    assert points["mentions"] == [(0, 9), (20, 10), (40, 5)]
    assert points["linker"] == [(0, 1.5), (20, 1.5), (40, 1)]
    assert points["score"] == [(0, 0), (20, 60), (40, pytest.approx(55))]
    assert points["mention f"] == [(0, 0), (20, 80), (40, pytest.approx(70))]
    assert points["link f"] == [(20, 40), (40, 40)]  # the first is unknown
    text = path.read_text("utf8")
    assert "40 of 200, epoch 4, after 1:30" in text and "60.00 % at update 20" in text
    close()
    assert "Training has ended." in path.read_text("utf8")
    rows = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [0, 20, 40]
    assert sorted(p.name for p in path.parent.iterdir()) == ["training.html", "training.jsonl"]


def test_a_training_that_goes_on_adds_to_its_page(tmp_path):
    path = tmp_path / "training.html"
    log, close = open_page(path)
    for step in (0, 20, 40):
        log(info(step, 0, step, (9, 1.5), score=step / 100, bioel_link_f=0.5))
    close()
    log, _ = open_page(path, done=20)  # it was stopped after 40, and goes on after 20
    log(info(0, 0, 5, (8, 2), score=0.3, bioel_link_f=0.25))
    log(info(20, 1, 25, (100, 2), score=0.5, bioel_link_f=0.75))
    assert points_of(path)["link f"] == [(0, 50), (20, 25), (40, 75)]
    assert points_of(path)["mentions"] == [(0, 9), (20, 8), (40, 5)]
    assert "40 of 200, epoch 1, after 0:45" in path.read_text("utf8")
    log, _ = open_page(path)  # from scratch
    log(info(0, 0, 5, (8, 2), score=0.3))
    assert points_of(path)["score"] == [(0, 30)]
    path.with_suffix(".jsonl").unlink()
    log, _ = open_page(path, done=20)
    log(info(0, 0, 5, (8, 2), score=0.3))
    assert points_of(path)["score"] == [(20, 30)]


def test_a_training_without_an_evaluation_or_with_a_loss_that_is_not_a_number(tmp_path):
    path = tmp_path / "training.html"
    open_page(path)[1]()
    assert "There is no evaluation yet." in path.read_text("utf8")
    log, close = open_page(path)
    log(info(0, 0, 4, (math.nan, 1.5), score=0.1, bioel_link_f=0.1))
    log(info(20, 0, 4, (math.inf, 1.5), score=0.2, bioel_link_f=0.2))
    assert "mentions" not in points_of(path)
    close()
    log, _ = open_page(path, done=40)
    log(info(0, 0, 4, (3, 1.5), score=0.1))
    assert points_of(path)["mentions"] == [(40, 3)]


def test_the_page_in_a_browser(tmp_path):
    path = tmp_path / "training.html"
    log, _ = open_page(path)
    for step in range(0, 400, 20):
        losses = (1000 / (step + 1), 5000 / (step + 9))
        log(info(step, 0, step, losses, score=1 - 9 / (step + 9), bioel_link_f=0.5))
    with chromium() as browser:
        check_page(browser, path.as_uri(), use=lambda page: page.locator("summary").first.click())
