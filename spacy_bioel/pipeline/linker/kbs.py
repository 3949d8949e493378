"""The setting `kb`: a folder, a list of folders, or a folder for each label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spacy.util import load_config

from spacy_bioel.errors import BioelError, Errors
from spacy_bioel.kb.columns.joined import JoinedKnowledgeBase
from spacy_bioel.kb.columns.store import KnowledgeBase
from spacy_bioel.storage.atomic import replacing_file

KbSetting = str | list[str] | dict[str, str]
INCLUDED = "kb"  # folder in a saved pipe


def check_kb(value: object) -> None:
    """RAISES BioelError: [B321] when this is no value of the setting."""
    if isinstance(value, str):
        return
    folders = list(value.values()) if isinstance(value, dict) else value
    named = isinstance(folders, list) and all(isinstance(folder, str) for folder in folders)
    labelled = not isinstance(value, dict) or all(isinstance(label, str) for label in value)
    if not (folders and named and labelled):
        raise BioelError(Errors.B321.format(found=value))


def map_folders(value: KbSetting, change: Callable[[str], str]) -> KbSetting:
    """The setting with other folders."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {label: change(folder) for label, folder in value.items()}
    return [change(folder) for folder in value]


def folders_of(value: KbSetting) -> list[str]:
    """Different folders, in the order of the parts of a joined knowledge base."""
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(value.values() if isinstance(value, dict) else value))


def open_kbs(value: KbSetting, open: Callable[[str], KnowledgeBase]) -> KnowledgeBase:
    """Open the knowledge bases of the setting, several as a joined one.

    Of a setting with a folder for each label but one folder only, `only_labels` has the labels.

    open (Callable): From a folder to its knowledge base.
    RAISES BioelError: [B321] on another value; those of `open`.
    """
    check_kb(value)
    folders = folders_of(value)
    if len(folders) == 1:
        return open(folders[0])
    labels = value if isinstance(value, dict) else {}
    numbers = {label: folders.index(folder) for label, folder in labels.items()}
    return JoinedKnowledgeBase([open(folder) for folder in folders], labels=numbers)


def only_labels(value: KbSetting) -> tuple[str, ...]:
    """Labels of the mentions that may be linked, where all of them have the same folder; ():
    mentions of all labels may be.
    """
    return tuple(value) if isinstance(value, dict) and len(folders_of(value)) == 1 else ()


def setting_of(kb: KnowledgeBase, places: Sequence[str], *, before: KbSetting) -> KbSetting:
    """The setting that opens a knowledge base.

    places (Sequence[str]): Folder of each of its parts.
    before (KbSetting): The setting that it was opened by, for the labels of a single folder.
    """
    if isinstance(kb, JoinedKnowledgeBase):
        return {label: places[n] for label, n in kb.labels.items()} or list(places)
    return dict.fromkeys(only_labels(before), places[0]) or places[0]


def find_included(folder: Path, place: str) -> str:
    """Folder of a knowledge base that came with a pipe. RAISES BioelError: [B056] without it."""
    if not (folder / place).is_dir():
        raise BioelError(Errors.B056.format(path=folder / place))
    return str(folder / place)


def forget_folder(pipe: Path, kb: KbSetting) -> None:
    """Correct the config of a pipeline that includes its knowledge base, which spaCy has written
    beside the pipe, with the folder that the knowledge base was in on this machine.
    """
    path = pipe.parent / "config.cfg"
    if not path.is_file():
        return  # the pipe is saved alone
    config = load_config(path)
    if "kb" in (settings := config.get("components", {}).get(pipe.name, {})):
        settings["kb"] = kb
        with replacing_file(path) as temporary:
            config.to_disk(temporary, interpolate=False)
