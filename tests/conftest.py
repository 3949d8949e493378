"""Options and markers that the whole test suite shares."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spacy

pytest.register_assert_rewrite("cases")
ROOT = Path(__file__).parents[1]
ALL = ("clinical", "contextual", "curation", "evaluation", "service", "spark")
# Files of tests besides those in `plugins`: plugins without which they are left out.
NEED = {
    "cli/test_cli_card.py": ["evaluation"],
    "cli/test_cli_check.py": ["evaluation"],
    "cli/test_cli_errors.py": ["evaluation"],
    "cli/test_cli_evaluate.py": ["evaluation"],
    "cli/test_cli_pages.py": ["evaluation"],
    "cli/test_cli_quantize.py": ["evaluation"],
    "cli/test_cli_train.py": ["evaluation"],
    "cli/test_cli_tune.py": ["evaluation"],
    "cli/test_cli_help.py": ["evaluation"],
    "cli/test_commands.py": ["curation", "evaluation"],
    "faults/test_inputs.py": ["curation"],
    "pipeline/test_fine_tuning.py": ["evaluation"],
    "pipeline/test_probing.py": ["evaluation"],
    "pipeline/test_ready.py": ["evaluation"],
    "pipeline/test_training_log.py": ["evaluation"],
    "pipeline/test_tuned_is_evaluated.py": ["evaluation"],
    "plugins/contextual/test_models.py": ["evaluation"],
    "test_main_jobs.py": ["curation", "evaluation"],
    "test_project.py": ["evaluation"],
    "test_ablations.py": ["evaluation"],
    "test_expressions.py": ["clinical"],
    "test_house.py": ["evaluation"],
    "test_mistakes.py": ALL,
    "test_pictures.py": ["evaluation"],
    "test_pretraining.py": ["contextual"],
    "test_prose.py": ALL,
    "test_reference.py": ALL,
    "test_starter_assets.py": ["evaluation"],
    "test_train.py": ["evaluation"],
    "faults/test_kill_points.py": ["curation", "evaluation"],
    "faults/test_private_texts.py": ["evaluation", "service"],
    "invariants/test_linear_time.py": ["clinical"],
}
PLUGINS = {path.parent.name for path in ROOT.glob("spacy_bioel/plugins/*/__init__.py")}
collect_ignore = [file for file, plugins in NEED.items() if not PLUGINS.issuperset(plugins)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    # Workers inherit it, and so do the processes that tests start: each has one processor.
    if config.getoption("numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    # pytest-randomly would set its seed again after the fixtures, and so after `_same_seed`.
    config.option.randomly_reset_seed = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Whoever takes a slow file last lets the other workers wait. Else the order stays as it is.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
        if item.get_closest_marker("realdata") and (reason := _no_data()):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _same_seed() -> None:
    """Chance is the same in each test, whatever ran before it, and whatever seed shuffles tests."""
    spacy.util.fix_random_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _same_folder() -> Iterator[None]:
    """A file of tests that works in a folder of its own leaves it at its end."""
    folder = Path.cwd()
    yield
    os.chdir(folder)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory) -> Iterator[None]:
    """Knowledge bases of the first use go to a folder of this run, not to the user's."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers: what one has built, the others open
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPACY_BIOEL_CACHE", str(folder / "cache"))
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A Hugging Face folder: a BERT of 2 layers of width 32 with random weights, letters and a few
    words as its word pieces."""
    transformers = pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789-"]
    words = ["heart", "attack", "renal", "failure", "##s", "##al"]
    inside = [f"##{letter}" for letter in letters if letter != "s"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *words, *inside]
    tokenizer = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = tmp_path_factory.mktemp("bert")
    tokenizer.save(str(folder / "tokenizer.json"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=len(pieces),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=32,
            initializer_range=0.3,
        )
        transformers.BertModel(config).save_pretrained(folder)
    return folder


def _no_data() -> str:
    """Reason why the tests on real corpora cannot run; "" if they can."""
    folder = os.environ.get("BIOEL_DATA", "")
    if not folder:
        return "needs real corpora: set BIOEL_DATA to the folder where they lie"
    return "" if Path(folder).is_dir() else f"BIOEL_DATA is {folder}, which is no folder"


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with real corpora, for tests marked realdata."""
    return Path(os.environ["BIOEL_DATA"])


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """An empty project folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "project.yml", tmp_path)
    return tmp_path


@pytest.fixture
def bioel(capsys) -> Any:
    """`bioel` run in this process: see `commands.command`."""
    from commands import command

    return command(capsys)


@pytest.fixture
def small_starter(tmp_path, monkeypatch) -> Path:
    """An empty cache, and a package whose concepts are these two and not thousands of MeSH."""
    import srsly

    from spacy_bioel.kb import bundled

    rows = [
        {
            "id": "MESH:D009203",
            "names": ["Myocardial Infarction", "Heart Attack"],
            "types": ["C"],
            "xrefs": ["DOID:5844", "SCTID:22298006"],
        },
        {"id": "MESH:D001241", "names": ["Aspirin", "Acetylsalicylic Acid"], "types": ["D"]},
    ]
    srsly.write_gzip_jsonl(tmp_path / "concepts.jsonl.gz", rows)
    monkeypatch.setitem(bundled._CONCEPT_FILES, "mesh", tmp_path / "concepts.jsonl.gz")
    monkeypatch.setenv("SPACY_BIOEL_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write a file, of text or bytes."""

    def write(content: str | bytes, name: str = "x.txt") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
