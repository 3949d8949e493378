"""Every reader reads the files of good.yml, and refuses those of broken.yml with code and line."""

import re

import pytest
from io_cases import as_row, load

from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import CORPUS_FORMATS, ONTOLOGY_FORMATS, read_ontology
from spacy_bioel.io.open import BadRecord, skipping_bad

GOOD, BROKEN = dict(load("good.yml")), dict(load("broken.yml"))


@pytest.mark.parametrize("name", GOOD)
def test_a_good_file_is_read(name, tmp_path, caplog):
    case = GOOD[name]
    assert [as_row(record) for record in case.read(case.write(tmp_path))] == case.row["read"]
    warned = {message[1:5]: message for message in caplog.messages}
    expected = case.row.get("warns", {})
    assert (len(caplog.messages), warned.keys()) == (len(expected), expected.keys())
    for code, words in expected.items():
        assert words in warned[code].replace(f"{tmp_path}/", "")


@pytest.mark.parametrize("name", [name for name, case in BROKEN.items() if "code" in case.row])
def test_a_broken_file_is_refused(name, tmp_path):
    case = BROKEN[name]
    with pytest.raises(BioelError) as refused:
        list(case.read(case.write(tmp_path)))
    message = str(refused.value)
    assert message.startswith(f"[{case.row['code']}] ")
    if line := case.row.get("line"):
        assert re.search(rf", line {line}\b", message)
    for words in case.row.get("says", ()):
        assert words in message


@pytest.mark.parametrize("name", [name for name, case in BROKEN.items() if "left" in case.row])
def test_bad_records_are_skipped_and_reported(name, tmp_path):
    case, noted = BROKEN[name], list[BadRecord]()
    path = case.write(tmp_path)
    with skipping_bad(noted.append) as skipped:
        if (left := case.row["left"]) is None:  # the file has nothing else
            with pytest.raises(BioelError, match=case.row["code"]):
                list(case.read(path))
            return
        assert [record.id for record in case.read(path)] == left
    assert [[record.line, record.code] for record in noted] == case.row["bad"]
    assert skipped.n == len(noted) and skipped.first[0] == noted[0].message
    assert {record.path for record in noted} <= {str(path), *map(str, tmp_path.iterdir())}
    with pytest.raises(BioelError):  # outside the block, errors are raised again
        list(case.read(path))


MISSPELT = [name for name in BROKEN if "misspelt columns" in name]


@pytest.mark.parametrize("name", MISSPELT)
def test_columns_that_are_proposed_for_misspelt_ones_are_read(name, tmp_path):
    case = BROKEN[name]
    pairs = case.row["says"][-1].removeprefix("--columns ").split(",")
    columns = dict(pair.split("=") for pair in pairs)
    assert next(read_ontology(case.write(tmp_path), columns=columns)).id == "1"


def test_every_format_has_a_good_file():
    formats = {name.split(",")[0].rpartition(" ")[0] for name in GOOD}
    expected = {f"corpus {name}" for name in CORPUS_FORMATS}
    expected |= {f"ontology {name}" for name in ONTOLOGY_FORMATS}
    assert expected - formats == {"ontology omop"}  # see test_omop.py
