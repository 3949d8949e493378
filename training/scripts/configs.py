"""Write the complete configs in training/configs, which `spacy train` accepts.

A file in a folder `extends` contains only the settings in which it differs from the config named
under [extends], whose path begins there, or with "{package}" in the package. This script writes the
complete config to a file of the same name, one folder up. `train.py` reads the short file, so that
the settings of a corpus (training/corpora.yml) replace those of the config that it extends, but not
its own.

    python training/scripts/configs.py
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import typer
from spacy.tokens import DocBin
from spacy.util import CONFIG_SECTION_ORDER, load_config
from thinc.api import Config

from spacy_bioel.errors import BioelError
from spacy_bioel.kb.bundled import ASSETS_FOLDER

# Of the name `auto`: below this number of training documents, training from the starter is better.
ENOUGH_DOCUMENTS = 500
CONFIGS = Path(__file__).parents[1] / "configs"
EXTENDS = "extends"
NO_CONFIG = (
    "[T009] There is no config {path}{asked}. Its folder has: {known}. Choose one of them "
    "(--vars.config), or another folder (--vars.configs)."
)
EDITED = (
    "[T032] {path} differs from {source}, which it is made from. To keep your changes, save the "
    "config under another name, or make them in {source} and run: "
    "python training/scripts/configs.py"
)


def main() -> None:
    """Write all complete configs again."""
    for source in sorted(CONFIGS.glob(f"**/{EXTENDS}/*.cfg")):
        path = source.parents[1] / source.name
        path.write_text(complete_config(source), encoding="utf8")


def choose_config(path: Path, train: Path, *, start: str) -> Path:
    """Return the config of a file or, if it is named auto.cfg and does not exist, that of the same
    folder which suits the number of training documents.

    start (str): Pipeline to start from; "": the starter, if the corpus is small.
    """
    if path.stem != "auto" or path.is_file():
        return path
    is_small = start or len(DocBin().from_disk(train)) < ENOUGH_DOCUMENTS
    return path.with_name("fine_tune.cfg" if is_small else "rescnn.cfg")


def complete_config(source: Path) -> str:
    """Return the text of the complete config for a file in a folder `extends`."""
    about = [x for x in source.read_text("utf8").partition("[")[0].splitlines() if x]
    about.append(f"# Made by training/scripts/configs.py from {EXTENDS}/{source.name}.")
    merged = reduce(Config.merge, load_chain(source))
    sections = {name: merged[name] for name in CONFIG_SECTION_ORDER if name in merged}
    text = Config(sections | merged, is_interpolated=False).to_str(interpolate=False)
    return "\n".join(about) + f"\n\n{text}\n"


def load_chain(path: Path, *, asked: str = "") -> list[Config]:
    """Return the configs that a file extends, then its own, not interpolated.

    asked (str): For the error: which config extends this one, if the user did not name it.
    RAISES BioelError: [T009] if the file is missing, [T032] if a complete config was edited.
    """
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.cfg"))) or "none"
        raise BioelError(NO_CONFIG.format(path=path, asked=asked, known=known))
    config: Any = load_config(path, interpolate=False)
    source = path.parent / EXTENDS / path.name
    if source.is_file():
        chain = load_chain(source)
        if reduce(Config.merge, chain) != config:
            raise BioelError(EDITED.format(path=path, source=source))
        return chain
    extends = config.pop("extends", None)
    if not extends:
        return [config]
    asked = f", which {path.name} extends"
    extended = extends["path"].format(package=ASSETS_FOLDER.parent)  # a project may lie elsewhere
    return [*load_chain(path.parent / extended, asked=asked), config]


if __name__ == "__main__":
    typer.run(main)
