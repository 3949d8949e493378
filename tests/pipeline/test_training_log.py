"""The log of training runs."""

from io import StringIO
from typing import Any

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
