"""Reader of the columns of a knowledge base; each column knows its file, for messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from spacy_bioel.kb.columns.checks import Origin, RawFile
from spacy_bioel.kb.columns.files import SortedKeys, StringColumn, read_array
from spacy_bioel.kb.columns.ragged import Ragged


class ColumnReader:
    """Views files as columns, without a copy.

    files (Mapping[str, RawFile]): Files by name, checked by `schema.checked_meta`.
    where (str): Folder, for messages.
    """

    def __init__(self, files: Mapping[str, RawFile], where: str) -> None:
        self._files = files
        self._where = where

    def origin(self, name: str) -> Origin:
        """Origin of an array, for messages."""
        return Origin(self._where, f"{name}.npy")

    def array(self, name: str) -> NDArray[Any]:
        return read_array(self._files[f"{name}.npy"])

    def strings(self, name: str) -> StringColumn:
        offsets = f"{name}.offsets"
        blob = self._files[f"{name}.txt"]
        return StringColumn(blob, self.array(offsets), origin=self.origin(offsets))

    def ragged(self, offsets: str, values: str, *, below: int, least: int = 0) -> Ragged:
        """Ragged column of two arrays; `below` and `least` as in `Ragged`."""
        return Ragged(
            self.array(offsets),
            self.array(values),
            below=below,
            least=least,
            origins=(self.origin(offsets), self.origin(values)),
        )

    def sorted_keys(self, name: str, *, below: int) -> SortedKeys:
        """Sorted keys of the arrays NAME_keys and NAME_key_rows; see `SortedKeys`."""
        rows = f"{name}_key_rows"
        keys = self.array(f"{name}_keys")
        return SortedKeys(keys, self.array(rows), below=below, origin=self.origin(rows))
