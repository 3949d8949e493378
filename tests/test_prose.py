"""Numbers, names and commands in prose are those of configs, code and measurements.

A text may be wrapped anywhere: white space counts as one space, and Markdown's marks stay.
"""

import ast
import lzma
import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from pkgutil import resolve_name

import pytest
import srsly
from commands import unknown_options
from safetensors import safe_open
from spacy.language import Language
from spacy.util import load_config

from benchmarks.reference import messages_of
from benchmarks.run import QUESTIONS
from spacy_bioel import factories
from spacy_bioel.dictionary import unambiguous
from spacy_bioel.errors import Errors, Warnings
from spacy_bioel.linking import candidates, searches
from spacy_bioel.settings import DictionarySettings, TrainingSettings

pytestmark = pytest.mark.pages
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


def measured(results: str, digits: int | None = 1, **about: object) -> float:
    """The one figure of benchmarks/results that has these fields."""
    (value,) = {
        row["value"]
        for row in srsly.read_json(ROOT / f"benchmarks/results/{results}.json")
        if about.items() <= row.items()
    }
    return value if digits is None else round(value + 1e-9, digits)


def numbers() -> Iterator[tuple[str, str, list[float]]]:
    """Page, what it says with {} for each number, and these numbers by the source.

    Figures of benchmarks that are no longer in the repository cannot change, and are not listed.
    """
    yield "README.md", "every span of up to {} tokens", [DETECTOR["max_width"]]
    yield "CHANGELOG.md", "every span of up to {} tokens", [DETECTOR["max_width"]]
    yield "CHANGELOG.md", "candidates of the last {} strings", [candidates.CACHED_STRINGS]
    size = [LINKER["model"][key] for key in ("dim", "blocks", "filters")]
    yield "CHANGELOG.md", "({} dimensions, {} blocks of {} filters)", size
    found = [DictionarySettings().threshold]
    yield "docs/concepts/dictionary.md", "below `dictionary.threshold` ({}) are dropped", found
    found = [unambiguous.MIN_NAME_LENGTH]
    yield "docs/concepts/dictionary.md", "Inexact matches need a name of {} characters", found
    nil = load_config(ASSETS / "starter/config.cfg")["components"]["bioel_linker"]["nil_threshold"]
    yield "docs/tutorials/starter.md", 'linker.cfg["nil_threshold"] = {} ```', [nil]
    yield "docs/concepts/starter.md", "Its `nil_threshold` is {}.", [nil]
    with safe_open(ASSETS / "encoder/model.safetensors", "np") as tensors:
        sizes = [tensors.get_tensor(key).size for key in tensors.keys()]  # noqa: SIM118
    millions = [round(sum(sizes) / 1e6, 1)]
    yield "docs/development/starter.md", "The name encoder has {}M trained parameters", millions
    yield SOURCES, "a ResCNN name encoder, {}M trained parameters", millions

    large = "docs/guides/large_kbs.md"
    yield large, "Up to {} names are encoded in memory", [searches.ENCODE_ON_LOAD]
    with lzma.open(ASSETS / "mesh.jsonl.xz", "rt") as lines:
        found = [len({name for line in lines for name in srsly.json_loads(line).get("names", ())})]
    yield large, "The bundled MeSH has {} names.", found
    # Mention F1 of the diseases of BC5CDR, of a detector with or without it in training.
    about = {"corpus": "bc5cdr", "subset": "Disease", "protocol": "mention"}
    found = [measured("starter", system=name, **about) for name in ("left_out", "left_out_control")]
    yield (
        "README.md",
        "F1 on BC5CDR was {} without BC5CDR in the training data, instead of {} (",
        found,
    )
    page = "docs/development/reproduce.md"
    steps = load_config(CONFIGS / "transformer.cfg")["training"]["max_steps"]
    yield page, "{} updates took 135 minutes", [steps]
    # The pipeline of the dual encoder over the light one.
    about = {"corpus": "bc5cdr", "metric": "f1"}
    found = [
        round(
            measured("end_to_end", None, system="dual_encoder", protocol=deep, subset="", **about)
            - measured("main_job", None, system="rescnn", protocol=light, **about),
            1,
        )
        for deep, light in (("mention", "mention"), ("strict", "end_to_end"))
    ]
    yield (
        page,
        "compared with the CNN, F1 rises by {} points for mentions, and by {} points end to end",
        found,
    )


def test_numbers():
    number = r"(three|\d[\d,]*(?:\.\d+)?)"
    for page, sentence, expected in numbers():
        found = re.findall(re.escape(sentence).replace(r"\{\}", number), PROSE[page])
        assert found, f"{page} does not say so any more: {sentence}"
        for words in found:
            said = [words] if isinstance(words, str) else words
            shown = [3 if word == "three" else float(word.replace(",", "")) for word in said]
            assert shown == expected, sentence


def test_libraries_were_measured():
    measured = srsly.read_json(ROOT / "benchmarks/results/libraries.json")
    assert len(measured) == 16
    missing = [row for row in measured if f"{row['value']:,}" not in read("CONTRIBUTING.md")]
    assert missing == []


def test_defaults_are_those_of_the_configs():
    """A config may differ from the defaults where that is listed here, and nowhere else."""
    shown = {key: value for key, value in LINKER["training"].items() if key != "seed"}
    assert shown.items() <= TrainingSettings.defaults().items()
    assert LINKER["model"] == factories.LINKER_MODEL
    encoder = srsly.read_json(ASSETS / "encoder/encoder.json")
    assert encoder.items() <= (LINKER["model"] | {"encoder": "rescnn"}).items()
    pretrained = load_config(CONFIGS / "pretrain.cfg")["model"]
    assert pretrained | {"dropout": 0.2} == LINKER["model"]
    # Regularised for corpora of some hundred documents.
    assert DETECTOR | {"dropout": 0.2} == factories.MENTIONS_MODEL
    assert DETECTOR["dropout"] == 0.4
    # Tuned again on development documents after training.
    default = Language.get_factory_meta("bioel_linker").default_config["nil_threshold"]
    assert (LINKER["nil_threshold"], default) == (0.15, 0.25)


def exists(dotted: str) -> bool:
    """Whether a module of the package, or what it defines, has this name."""
    try:
        resolve_name(dotted)
    except (AttributeError, ImportError):
        return False
    return True


def test_files_that_are_named_exist():
    """In pages, settings, code and templates: `a/b.py` as the end of a path, or as a block of the
    page; `spacy_bioel.a.b`."""
    folders = [PACKAGE, *(ROOT / name for name in ("benchmarks", "training", "tests"))]
    files = [path.as_posix() for folder in folders for path in folder.rglob("*.py")]
    named = [ROOT / page for page in TODAY] + [*ROOT.glob("*.yml"), *ROOT.glob("docs/**/*.yml")]
    named += [path for folder in folders[:-1] for path in folder.rglob("*.*")
              if path.suffix in (".py", ".html", ".yml", ".cfg")]  # fmt: skip
    stale = []
    for path in named:
        text = path.read_text("utf8")
        for name in set(re.findall(r"(?<![\w./{}-])\w+(?:/\w+)*\.py\b", text)):
            of_page = f'title="{name}"' in text
            if not of_page and not any(file.endswith(f"/{name}") for file in files):
                stale.append(f"{path}: {name}")
        for name in set(re.findall(r"\bspacy_bioel(?:\.[a-z_]\w*)+", text)):
            if not exists(name):
                stale.append(f"{path}: {name}")
    assert stale == []


def test_codes_exist():
    known = {code for kind in (Errors, Warnings) for code, _ in messages_of(kind)}
    for page in PROSE:
        found = {code for codes in CODE.findall(PROSE[page]) for code in codes.split(", ")}
        assert found <= known, page


def command_lines(page: str) -> Iterator[list[str]]:
    """Arguments of `bioel`, as blocks and cells of the page show them."""
    text = (ROOT / page).read_text("utf8")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`([^`\n]+)`", text)]:
        for command in re.split(r" \| | && ", line):
            if command.startswith("bioel "):
                yield shlex.split(command)[1:]


def test_commands_have_the_options_that_are_shown():
    # That page adds a command.
    pages = [page for page in TODAY if page != "docs/guides/plugins.md"]
    found = [(page, arguments) for page in pages for arguments in command_lines(page)]
    assert [line for line in found if unknown_options(line[1])] == []
    assert len(found) > 100


def test_steps_and_settings_of_the_project_exist():
    project = srsly.read_yaml(ROOT / "project.yml")
    steps = {*project["workflows"], *(command["name"] for command in project["commands"])}
    n = 0
    pages = map(PROSE.get, TODAY)
    for text in [*pages, read("project.yml"), read("training/scripts/card.py")]:
        assert set(re.findall(r"spacy project run (\w[\w-]*)", text)) <= {*steps, "NAME"}
        assert set(re.findall(r"--vars\.(\w+)", text)) <= set(project["vars"])
        # `spacy project run all --vars.corpus X` would take the option for the folder.
        folders = re.findall(r"run \w+ (\S+) --vars", text)
        assert set(folders) <= {"."} and not re.search(r"run \w+ --vars", text)
        n += len(folders)
    assert n > 15


def test_names_of_configs_scripts_extras_and_registered_functions_exist():
    setup = ConfigParser(delimiters=("=",))
    setup.optionxform = str  # type: ignore[assignment,method-assign]
    setup.read(ROOT / "setup.cfg", encoding="utf8")
    assert setup["options"]["python_requires"] == ">=3.11,<3.14"
    assert "Python 3.11 to 3.13" in PROSE["README.md"]
    functions = " ".join(setup["options.entry_points"].values())
    registered = set(re.findall(r"spacy-bioel\.(\w+\.v\d)", functions))
    for page in TODAY:
        text = PROSE[page]
        assert set(re.findall(r"spacy-bioel\.(\w+\.v\d)", text)) <= registered
        extras = re.findall(r"spacy-bioel\[(\w+)\]|[Ee]xtra `(\w+)`|`(\w+)` extra", text)
        assert {"".join(names) for names in extras} <= set(setup["options.extras_require"])
        found = [f"{name.replace('.', '/')}.py"
                 for name in re.findall(r"python -m (benchmarks\.\w+)", text)]  # fmt: skip
        asked = re.findall(r"benchmarks\.run ([a-z]\w+)(?![^`]*# at commit)", text)
        assert set(asked) <= QUESTIONS.keys()
        found += re.findall(r"`(?:training/configs/)?(\w+\.cfg)`", text)
        found += re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?<![/_]x)\.(?:py|cfg|json|yml|md))`", text)
        for file in found:
            assert any((folder / file).is_file() for folder in (ROOT, PACKAGE, CONFIGS)), file
