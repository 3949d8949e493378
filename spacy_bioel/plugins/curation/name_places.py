"""Choose which text near an id is its name by comparing all records with the same layout.

A file repeats its layout: "name (id)" in each line, a name above each id, or an id in the second
cell of a row and its name in the fourth. The name of an id is in the place whose texts are most
often names of concepts, especially of the concepts with these ids. A place that suits all ids of a
record is preferred: in "name: id, name: id", a name never comes after its id.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from spacy_bioel.plugins.curation.ids import prefix_of
from spacy_bioel.plugins.curation.pairs import Cell, Pair

AGREES, NAMES = 2.0, 1.0  # Values of a text that names the id's concept, or another concept.
# A function that maps each (id, text) pair to its value: AGREES, NAMES or 0.
NameValues = Callable[[Iterable[tuple[str, str]]], Mapping[tuple[str, str], float]]
NamePlace = tuple[str, int, str]  # relative to an id: ("before", 1, "whole"), ("cell", -2, "")
SENTENCE = ("sentence", 0, "")  # the words around an id
N_RECORDS = 4000  # number of records compared at a time
MAX_NAME_LENGTH = 200
_MARKED = 0.6  # bonus for a place that the record itself marks as the name
_MIN_SCORE = 0.5  # minimum score of a place: the mean value of its texts minus its cost
_MIN_RECORDS = 3  # fewer records do not establish a layout, unless a name agrees with its id
_N_LIKE = 100  # number of ids sampled to see which vocabularies are mixed
_N_RIVALS = 60  # number of places compared to find those with the same texts
_COST = {"before": 0.0, "after": 0.01, "cell": 0.0, "sentence": 0.02, "key": 0.02}


def no_values(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
    """Return 0 for every pair, as if no text were a concept's name."""
    return dict.fromkeys(pairs, 0.0)


class Entry(NamedTuple):
    """An id and the texts near it, keyed by place.

    position (int): Position of the id in records of this layout, such as its column number.
    texts (dict): For each place, the strings that may be the name, most likely first.
    marked (NamePlace | None): The place that the record itself marks as the name, by brackets as
        in "name (id)", or by the header of a column.
    shares (bool): Whether the id has the same name as the id before it, as in "name (id, id)".
    """

    position: int
    id: Cell
    texts: dict[NamePlace, tuple[Cell, ...]]
    marked: NamePlace | None = None
    shares: bool = False


class IdRecord(NamedTuple):
    """The ids in a line, row or object; records with the same `layout` are compared."""

    layout: Hashable
    entries: Sequence[Entry]


class _Score(NamedTuple):
    """How well a place suits an id: score, number of agreeing names, and whether these suffice."""

    total: float
    agrees: int
    is_clear: bool


def _cost_of(place: NamePlace) -> float:
    """Return how much less likely a place is to hold the name than the closest place."""
    kind, n, reading = place
    is_part = reading not in ("", "whole")
    return _COST.get(kind, 0.05) + 0.02 * abs(n) + 0.005 * (n > 0) + 0.03 * is_part


class NamePlaces:
    """Finds the places that hold the names of the ids in a batch of records.

    records (Sequence[IdRecord]): At most about `N_RECORDS`.
    values (NameValues): Tells which texts are names.
    """

    def __init__(self, records: Sequence[IdRecord], values: NameValues) -> None:
        self._records = records
        layouts: dict[Hashable, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        self._similar: dict[str, set[str]] = defaultdict(set)  # one id per vocabulary
        for layout, entries in records:
            for entry in entries:
                layouts[layout][entry.position].append(entry)
        for positions in layouts.values():
            every = list(chain.from_iterable(positions.values()))
            for entries in positions.values():
                like = entries if len(entries) >= _MIN_RECORDS else every
                one = {prefix_of(entry.id.text): entry.id.text for entry in like[:_N_LIKE]}
                for entry in entries if len(one) > 1 else ():
                    self._similar[entry.id.text].update(one.values())
        self._known = values(
            (id, cell.text)
            for record in records
            for entry in record.entries
            for id in (entry.id.text, *self._similar.get(entry.id.text, ()))
            for cells in entry.texts.values()
            for cell in cells
            if len(cell.text) <= MAX_NAME_LENGTH
        )
        self.chosen: dict[tuple[Hashable, int], list[NamePlace]] = {}  # the best first
        for layout, positions in layouts.items():
            for position, places in self._choose(positions):
                self.chosen[layout, position] = places

    def _value(self, entry: Entry, cell: Cell) -> float:
        """Return a text's value as the name of an id, or of other ids in the same position."""
        value = self._known.get((entry.id.text, cell.text), 0.0)
        others = () if value else self._similar.get(entry.id.text, ())
        return value or NAMES * any(self._known.get((id, cell.text)) for id in others)

    def _name_at(self, entry: Entry, place: NamePlace) -> Cell | None:
        """Return the first of a place's texts that is a name, or the likeliest text if none is."""
        cells = entry.texts.get(place, ())
        return next((cell for cell in cells if self._value(entry, cell)), next(iter(cells), None))

    def _score(self, entries: Sequence[Entry], place: NamePlace) -> _Score:
        named = ((entry, self._name_at(entry, place)) for entry in entries)
        found = [(self._value(entry, name), entry.marked == place) for entry, name in named if name]
        total = sum(value + is_marked * (_MARKED + (value > 0)) for value, is_marked in found)
        total = total / len(entries) - _cost_of(place)
        agrees = sum(value == AGREES for value, _ in found)
        is_clear = len(entries) >= _MIN_RECORDS or agrees > 0 or any(marked for _, marked in found)
        return _Score(total, agrees, is_clear)

    def _choose(
        self, positions: Mapping[int, Sequence[Entry]]
    ) -> Iterator[tuple[int, list[NamePlace]]]:
        """Yield each position whose ids have names, with the names' places, best first."""
        scores: dict[int, dict[NamePlace, _Score]] = {}
        totals: Counter[NamePlace] = Counter()
        for position, entries in positions.items():
            places = {place for entry in entries for place in entry.texts}
            scores[position] = {place: self._score(entries, place) for place in sorted(places)}
            totals.update({place: score.total for place, score in scores[position].items()})
        joint = self._joint_place(positions, totals)
        taken = set[Cell]()
        of_joint = [score[joint] for score in scores.values() if joint and joint in score]
        is_clear = len(of_joint) >= _MIN_RECORDS or any(score.agrees for score in of_joint)
        wanted = {
            position: sorted(
                (
                    place
                    for place, score in of_position.items()
                    if score.total >= _MIN_SCORE and (score.is_clear or is_clear and place == joint)
                ),
                key=lambda place: (place != joint, -of_position[place].total),  # noqa: B023
            )
            for position, of_position in scores.items()
        }
        best = {p: scores[p][places[0]].total for p, places in wanted.items() if places}
        for position in sorted(best, key=lambda p: -best[p]):
            entries = positions[position]
            free = list[NamePlace]()
            for place in wanted[position]:
                owned = (entry for entry in entries if not entry.shares)
                cells = {name for entry in owned if (name := self._name_at(entry, place))}
                is_right = 2 * scores[position][place].agrees > len(entries)
                if is_right or 2 * len(cells & taken) <= len(cells):
                    taken |= cells if not free else set()
                    free.append(place)
            if free:
                yield position, free

    def _joint_place(
        self, positions: Mapping[int, Sequence[Entry]], totals: Mapping[NamePlace, float]
    ) -> NamePlace | None:
        """Return the place that best suits the ids in all positions.

        The text after an id is also before the next id. Of two places with the same texts, the one
        with more is better (no text precedes the first id); if both have as many, the closer one.
        """

        def names_of(place: NamePlace) -> set[Cell]:
            entries = (entry for of_position in positions.values() for entry in of_position)
            named = ((entry, self._name_at(entry, place)) for entry in entries)
            return {name for entry, name in named if name and self._value(entry, name)}

        ordered = sorted(totals, key=lambda place: (-totals[place], place))[:_N_RIVALS]
        joint = next(iter(ordered), None)
        if joint is None:
            return None
        names = most = names_of(joint)
        for place in ordered[1:]:
            others = names_of(place)
            is_same = 2 * len(names & others) > len(names | others)
            if is_same and (len(others), -_cost_of(place)) > (len(most), -_cost_of(joint)):
                joint, most = place, others
        return joint

    def pairs(self) -> Iterator[Pair]:
        """Yield the ids with their names. A name that agrees with one id belongs to no other id."""
        names: list[tuple[NamePlace | None, Cell | None]] = []
        owners: dict[Cell, set[str]] = defaultdict(set)
        for layout, entries in self._records:
            for entry in entries:
                places = self.chosen.get((layout, entry.position), ())
                place = next((place for place in places if place in entry.texts), entry.marked)
                names.append((place, name := self._name_at(entry, place) if place else None))
                if name:
                    agrees = self._value(entry, name) == AGREES
                    owners[name].update({entry.id.text} if agrees else ())
        every = (entry for record in self._records for entry in record.entries)
        for entry, (place, name) in zip(every, names, strict=True):
            if place is None or name is None:
                cells = sorted((p for p in entry.texts if p[0] == "cell"), key=_cost_of)
                texts = entry.texts.get(SENTENCE, tuple(entry.texts[p][0] for p in cells))
                yield Pair(entry.id, tuple(c for c in texts if not owners.get(c)))
            elif owners[name] and entry.id.text not in owners[name] and not entry.shares:
                yield Pair(entry.id)
            else:
                found = entry.texts[place]
                if not self._value(entry, name):  # another text may be a misspelt name
                    near = (cell for cells in entry.texts.values() for cell in cells)
                    free = (c for c in near if c not in owners and self._value(entry, c) != NAMES)
                    found = tuple(dict.fromkeys((*found, *free)))
                yield Pair(entry.id, found, True)
