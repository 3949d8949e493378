"""Numbers, names and commands in prose are those of configs, code and measurements.

A text may be wrapped anywhere: white space counts as one space, and Markdown's marks stay.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import shlex
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import srsly
import typer
from safetensors import safe_open
from spacy.language import Language
from spacy.util import load_config

from benchmarks.run import QUESTIONS
from spacy_bioel.cli.app import app
from spacy_bioel.errors import Errors, Warnings
from spacy_bioel.kb.vectors.ann import ANN_NAMES
from spacy_bioel.kb.words import ngrams
from spacy_bioel.pipeline import factories
from spacy_bioel.pipeline.linker import candidates, names
from spacy_bioel.pipeline.mentions import name_evidence

ROOT = Path(__file__).parents[1]
PACKAGE, CONFIGS = ROOT / "spacy_bioel", ROOT / "training/configs"
ASSETS = PACKAGE / "assets"
SOURCES = "spacy_bioel/assets/SOURCES.md"
PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")),
    "spacy_bioel/assets/starter/README.md",
    SOURCES,
]
# What these say holds today: a change log tells of what was, and the mistakes are wrong on purpose.
TODAY = [page for page in PAGES if page not in ("CHANGELOG.md", "docs/reference/mistakes.md")]
RESCNN = load_config(CONFIGS / "rescnn.cfg")
DETECTOR = RESCNN["components"]["bioel_mentions"]["model"]
LINKER = RESCNN["components"]["bioel_linker"]
CODE = re.compile(r"\[([BW]\d{3}(?:, [BW]\d{3})*)\]")


def read(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf8").split())


def docstrings() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                yield " ".join((ast.get_docstring(node) or "").split())


PROSE = {page: read(page) for page in PAGES} | {"docstrings": " ".join(docstrings())}


def default(factory: str) -> dict[str, Any]:
    return Language.get_factory_meta(factory).default_config


def trained_parameters() -> float:
    with safe_open(ASSETS / "encoder/model.safetensors", "np") as tensors:
        return sum(tensors.get_tensor(key).size for key in tensors.keys())  # noqa: SIM118


def starter_names() -> int:
    with gzip.open(ASSETS / "mesh.jsonl.gz", "rt", encoding="utf8") as lines:
        return len({name for line in lines for name in json.loads(line)["names"]})


def measured(question: str, **about: object) -> float:
    """The one figure of benchmarks/results that has these fields."""
    (value,) = {
        row["value"]
        for row in srsly.read_json(ROOT / f"benchmarks/results/{question}.json")
        if about.items() <= row.items()
    }
    return value


def f1(system: str) -> float:
    about = {"corpus": "ncbi_disease", "protocol": "mention", "subset": ""}
    return round(measured("detection", system=system, metric="f1", **about), 1)


def multitask_f1(protocol: str) -> float:
    about = {"system": "multitask", "corpus": "bc5cdr", "subset": "", "metric": "f1"}
    return round(measured("multitask", protocol=protocol, **about), 1)


def reranker_is_slower() -> int:
    rows = srsly.read_json(ROOT / "benchmarks/results/reading_speed.json")
    values = [row["value"] for row in rows if row["system"] == "rerank"
              and row["metric"] == "collective_is_faster"]  # fmt: skip
    return round(min(values))


def left_out(system: str) -> float:
    """Mention F1 of the diseases of BC5CDR, of a detector with or without it in training."""
    about = {"corpus": "bc5cdr", "subset": "Disease", "protocol": "mention"}
    return round(measured("starter", system=system, **about), 1)


def threshold() -> float:
    config = load_config(ASSETS / "starter/config.cfg")
    return config["components"]["bioel_linker"]["nil_threshold"]


def gain(protocol: str) -> float:
    """Points of F1 on BC5CDR dev of the dual encoder's pipeline over the light one."""
    about = {"corpus": "bc5cdr", "metric": "f1"}
    deep = measured("end_to_end", system="dual_encoder", protocol=protocol, subset="", **about)
    light = {"mention": "mention", "strict": "end_to_end"}[protocol]
    return round(deep - measured("main_job", system="rescnn", protocol=light, **about), 1)


def library(question: str, *systems: str, metric: str = "second") -> list[float]:
    rows = [row for row in srsly.read_json(ROOT / "benchmarks/results/libraries.json")
            if row["question"] == question and metric in row["metric"]]  # fmt: skip
    return [row["value"] for system in systems for row in rows if row["system"] == system]


def milliseconds(names: int) -> float:
    """Time of a mention among so many names."""
    rows = srsly.read_json(ROOT / "benchmarks/results/growth.json")
    wanted = {"question": "mention", "metric": "seconds", "names": names}
    (value,) = [row["value"] for row in rows if wanted.items() <= row.items()]
    return round(1000 * value, 1)


def max_width() -> list[float]:
    return [DETECTOR["max_width"]]


def millions_of_parameters() -> list[float]:
    return [round(trained_parameters() / 1e6, 1)]


def steps_of_transformer() -> list[float]:
    return [load_config(CONFIGS / "transformer.cfg")["training"]["max_steps"]]


def size_of_encoder() -> list[float]:
    return [LINKER["model"][key] for key in ("dim", "blocks", "filters")]


# Page, what it says with {} for each number, and these numbers by the source.
NUMBERS: list[tuple[str, str, Callable[[], list[float]]]] = [
    ("README.md", "every span of up to {} tokens", max_width),
    ("CHANGELOG.md", "every span of up to {} tokens", max_width),
    (
        "README.md",
        "it finds the diseases of BC5CDR with an F1 of {} instead of {} (",
        lambda: [left_out("left_out"), left_out("light_beside")],
    ),
    ("docs/tutorials/starter.md", 'linker.cfg["nil_threshold"] = {} ```', lambda: [threshold()]),
    ("docs/starter.md", "Its `nil_threshold` is {}.", lambda: [threshold()]),
    (
        "docs/guides/large_kbs.md",
        "Up to {} names are encoded in memory",
        lambda: [names.ENCODE_ON_LOAD],
    ),
    ("docs/ontology.md", "nearly a name of {} characters or more", lambda: [name_evidence._FEWEST]),
    ("docs/starter.md", "The name encoder has {}M trained parameters", millions_of_parameters),
    (SOURCES, "a ResCNN encoder of names, {}M trained parameters", millions_of_parameters),
    (
        "docs/guides/large_kbs.md",
        "own knowledge base of MeSH has {} names.",
        lambda: [starter_names()],
    ),
    ("docs/reproduce.md", "{} updates took 135 minutes", steps_of_transformer),
    (
        "docs/reproduce.md",
        "pays in finding mentions: {} points of F1 over the CNN, and {} end to end",
        lambda: [gain("mention"), gain("strict")],
    ),
    (
        "docs/reproduce.md",
        "among 10,000 names, {} among 100,000, {} among a million and {} among 2 million",
        lambda: [milliseconds(names) for names in (100_000, 1_000_000, 2_000_000)],
    ),
    (
        "docs/reproduce.md",
        "every span scored {}, the published linear score of spans {}, tags {}.",
        lambda: [f1("spans"), f1("linear_spans"), f1("tags")],
    ),
    (
        "docs/reproduce.md",
        "and the dual encoder is {} times as fast",
        lambda: [reranker_is_slower()],
    ),
    (
        "docs/multitask.md",
        "with a strict F1 of {} with their types and {} without",
        lambda: [multitask_f1("mention"), multitask_f1("mention_unlabelled")],
    ),
    (
        "docs/generative.md",
        "with all ids right from {} to {} (seed 0, n 9,532,",
        lambda: [
            round(measured("generative", system=f"workflow: {system}"), 1)
            for system in ("strings", "both")
        ],
    ),
    ("docs/ontology.md", "`finding.threshold` ({}) is", lambda: [factories.FINDING["threshold"]]),
    (
        "CONTRIBUTING.md",
        "{} queries a second in int8, {} in float32 | {}, with",
        lambda: library("search", "usearch, int8", "usearch, float32", "ours"),
    ),
    (
        "CONTRIBUTING.md",
        "| {} strings a second, {} bytes | {} with strings compared, {} bytes; {} spans",
        lambda: [
            *library("lookup", "marisa-trie"),
            *library("lookup", "marisa-trie", metric="bytes"),
            *library("lookup", "ours"),
            *library("lookup", "ours", metric="bytes"),
            *library("lookup", "ours, keys of spans"),
        ],
    ),
    (
        "CONTRIBUTING.md",
        "lines that it cannot read | {}; file, line and code",
        lambda: library("formats", "ours"),
    ),
    ("CHANGELOG.md", "candidates of the last {} strings", lambda: [candidates.KEPT]),
    ("CHANGELOG.md", "({} dimensions, {} blocks of {} filters)", size_of_encoder),
]
NUMBER = r"(three|\d[\d,]*(?:\.\d+)?)"


def to_number(word: str) -> float:
    return 3 if word == "three" else float(word.replace(",", ""))


@pytest.mark.parametrize(("page", "sentence", "expected"), NUMBERS, ids=[s for _, s, _ in NUMBERS])
def test_numbers(page: str, sentence: str, expected: Callable[[], list[float]]) -> None:
    found = list(re.finditer(re.escape(sentence).replace(r"\{\}", NUMBER), PROSE[page]))
    assert found, "the page does not say so any more"
    for match in found:
        assert list(map(to_number, match.groups())) == expected()


def test_the_size_at_which_search_becomes_approximate() -> None:
    assert ngrams._ALL == ANN_NAMES == 200_000
    text = " ".join(PROSE.values())
    found = re.findall(r"(?i)(?:exact for up to|more than|above) ([\d,]+) names", text)
    assert set(found) == {"200,000"}


def test_dates_of_the_knowledge_base() -> None:
    release = srsly.read_json(ASSETS / "mesh.json")["release"]
    assert release == "about January 2024"
    assert srsly.read_yaml(ROOT / "project.yml")["vars"]["mesh_release"] == release
    for page in ("docs/starter.md", SOURCES):
        assert release in PROSE[page]


def test_defaults_are_those_of_the_configs() -> None:
    """A config may differ from the defaults where that is listed here, and nowhere else."""
    shown = {key: value for key, value in LINKER["training"].items() if key != "seed"}
    assert shown.items() <= factories.LINKER_TRAINING.items()
    assert LINKER["model"] == factories.LINKER_MODEL
    encoder = srsly.read_json(ASSETS / "encoder/encoder.json")
    assert encoder.items() <= (LINKER["model"] | {"encoder": "rescnn"}).items()
    pretrained = load_config(CONFIGS / "pretrain.cfg")["model"]
    assert pretrained | {"dropout": 0.2} == LINKER["model"]
    # Regularised for corpora of some hundred documents.
    assert DETECTOR | {"dropout": 0.2} == factories.MENTIONS_MODEL
    assert DETECTOR["dropout"] == 0.4
    # Chosen anew on development documents after training.
    assert (LINKER["nil_threshold"], default("bioel_linker")["nil_threshold"]) == (0.15, 0.25)


def test_losses() -> None:
    losses = {"info_nce", "multi_similarity", "marginal"}
    assert factories.LINKER_TRAINING["loss"] == "info_nce"
    for text in PROSE.values():
        for sentence in re.findall(r"`loss`? = [^;.]*", text):
            assert set(re.findall(r'"(\w+)"', sentence)) <= losses
    assert losses <= set(re.findall(r"\w+", Errors.B048))


def test_codes_exist() -> None:
    known = {name for name in (*vars(Errors), *vars(Warnings)) if not name.startswith("_")}
    for page in PROSE:
        found = {code for codes in CODE.findall(PROSE[page]) for code in codes.split(", ")}
        assert found <= known, page


def command_lines(page: str) -> Iterator[list[str]]:
    """Arguments of `bioel`, as blocks and cells of the page show them."""
    text = (ROOT / page).read_text("utf8")
    blocks = [line.partition(" #")[0] for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
              for line in block.splitlines()]  # fmt: skip
    for line in [*blocks, *re.findall(r"`([^`\n]+)`", text)]:
        for command in re.split(r" \| | && ", line):
            if command.startswith("bioel "):
                yield shlex.split(command)[1:]


def test_commands_have_the_options_that_are_shown() -> None:
    n = 0
    for page in TODAY:
        for arguments in command_lines(page):
            command: Any = typer.main.get_command(app)
            rest = list(arguments)
            while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
                command = command.commands[rest.pop(0)]
            known = {option for param in command.params for option in param.opts} | {"--help"}
            shown = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
            assert shown <= known, (page, arguments)
            n += 1
    assert n > 100


def test_steps_and_settings_of_the_project_exist() -> None:
    project = srsly.read_yaml(ROOT / "project.yml")
    steps = {*project["workflows"], *(command["name"] for command in project["commands"])}
    for page in PAGES:
        text = PROSE[page]
        assert set(re.findall(r"spacy project run (\w[\w-]*)", text)) <= steps
        assert set(re.findall(r"--vars\.(\w+)", text)) <= set(project["vars"])


def test_commands_of_the_project_name_its_folder() -> None:
    """`spacy project run all --vars.corpus X` takes the option for the folder."""
    texts = [read(page) for page in [*PAGES, "project.yml", "training/scripts/card.py"]]
    found = [after for text in texts for after in re.findall(r"run \w+ (\S+) --vars", text)]
    assert len(found) > 15 and set(found) == {"."}
    assert [text for text in texts if re.search(r"run \w+ --vars", text)] == []


def test_names_of_configs_scripts_extras_and_registered_functions_exist() -> None:
    setup = ConfigParser(delimiters=("=",))
    setup.optionxform = str  # type: ignore[assignment,method-assign]
    setup.read(ROOT / "setup.cfg", encoding="utf8")
    entry_points = " ".join(setup["options.entry_points"].values())
    searches = (ROOT / "benchmarks/spelling.py").read_text("utf8")
    registered = set(re.findall(r"spacy-bioel\.(\w+\.v\d)", entry_points + searches))
    extras = set(setup["options.extras_require"])
    for page in TODAY:
        text = PROSE[page]
        assert set(re.findall(r"spacy-bioel\.(\w+\.v\d)", text)) <= registered
        found = re.findall(r"spacy-bioel\[(\w+)\]", text) + re.findall(r"[Ee]xtra `(\w+)`", text)
        assert set(found) <= extras
        for script in re.findall(r"python -m (benchmarks\.\w+)", text):
            assert (ROOT / f"{script.replace('.', '/')}.py").is_file(), script
        questions = set(re.findall(r"python -m benchmarks\.run (\w+)", text)) - {"NAME"}
        assert questions <= QUESTIONS.keys()
        for config in re.findall(r"`(?:training/configs/)?(\w+\.cfg)`", text):
            assert any((folder / config).is_file() for folder in (CONFIGS, ROOT)), config
        for file in re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?<![/_]x)\.(?:py|cfg|json|yml|md))`", text):
            assert (ROOT / file).is_file() or (PACKAGE / file).is_file(), file


def test_python_versions() -> None:
    setup = (ROOT / "setup.cfg").read_text("utf8")
    assert "python_requires = >=3.11,<3.14" in setup
    assert "Python 3.11 to 3.13" in PROSE["README.md"]
