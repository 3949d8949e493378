"""`bioel link`: what it reads, and the formats that it writes; `bioel convert`."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.tokens import DocBin
from tiny import needs

import spacy_bioel
from spacy_bioel.cli.inputs import stream_documents
from spacy_bioel.corpus import read_texts
from spacy_bioel.errors import BioelError
from spacy_bioel.io.formats import read_corpus
from spacy_bioel.kb.build import build_kb
from spacy_bioel.types import Concept

STARTER_TEXT = "The BRAF V600E mutation is common in melanoma.\n"


@pytest.fixture()
def notes(tmp_path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("Narcan was given.\n\nNothing here.\nclonidine and Narcan\n")
    return path


def from_stdin(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), encoding="ascii"))


def found_in(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(link["text"], link["id"]) for link in row["links"]]


def test_lines_of_plain_text(bioel, model, notes):
    done = bioel("link", model, notes)
    assert "3 documents, 3 mentions, 0 of them NIL." in done.err
    assert [row["id"] for row in done.rows] == ["1", "3", "4"]
    assert done.rows[1]["links"] == []
    (link,) = done.rows[0]["links"]
    (candidate,) = link.pop("candidates")
    assert link == {
        **{"start": 0, "end": 6, "text": "Narcan", "label": "D"},
        **{"id": "MESH:D009270", "ids": ["MESH:D009270"]},
    }
    assert sorted(candidate) == ["evidence", "id", "name", "score"]


def test_the_pipeline_of_the_package_is_the_default(bioel, tmp_path):
    notes, gold = tmp_path / "notes.txt", tmp_path / "gold.jsonl"
    notes.write_text(STARTER_TEXT, encoding="utf8")
    alone = bioel("link", notes)
    assert [(x["text"], x["id"], x.get("hgvs")) for x in alone.json["links"]] == [
        ("BRAF", "NCBIGene:673", None),
        ("V600E", None, "p.Val600Glu"),
        ("melanoma", "MESH:D008545", None),
    ]
    assert bioel("link", "starter", notes).out == alone.out
    mention = {"start": 4, "end": 8, "label": "Gene", "ids": ["NCBIGene:673"]}
    text = {"text": STARTER_TEXT, "mentions": [mention], "annotates": ["Gene"]}
    gold.write_text(json.dumps(text))
    rows = bioel("evaluate", "starter", gold, "--protocol", "end_to_end", "--json", "-").json
    assert [r["value"] for r in rows if r["metric"] == "f1" and r["label"] == ""] == [100.0]


def test_tables_of_texts(bioel, model, tmp_path):
    table = tmp_path / "notes.csv"
    table.write_bytes(b'text, id,year\r\n"Gout, and\r\nfever.",A,2020\r\n,B,2021\r\n"",C,\r\n')
    rows = bioel("link", model, table).rows
    assert [(row["id"], row["text"], row["error"]) for row in rows] == [
        ("A", "Gout, and\r\nfever.", None),
        ("B", "", None),
        ("C", "", None),
    ]


def test_a_text_with_a_comma_is_not_cut(bioel, model, tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,Narcan, then naloxone\n")
    done = bioel("link", model, tmp_path / "a.csv", "-o", tmp_path / "out.jsonl", status=2)
    assert "[B510]" in done.err and "line 2" in done.err and "double quotes" in done.err
    assert "naloxone" not in done.err and not (tmp_path / "out.jsonl").exists()


def test_messages_quote_little_of_a_table(tmp_path):
    secret = "Seen in clinic. " * 6 + "Jane Doe"
    for name, content in [
        ("a.csv", f'1,"{secret}"\n'),
        ("a.csv", f"id,text\n{secret},Fever\n{secret},Gout\n"),
        ("a.csv", f'id,text\n1,"{secret}\n'),
        ("a.csv", f'id,text\n1,"{secret}"x\n'),
        ("a.csv", f"id,text\n1,{secret},{secret}\n"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(BioelError) as caught:
            list(stream_documents(str(tmp_path / name), None))
        assert "Jane" not in str(caught.value)


def test_bad_rows_are_skipped_and_listed(bioel, model, tmp_path):
    table, report = tmp_path / "a.csv", tmp_path / "bad.tsv"
    bad = b"2,Gout, fever\n1,Fever\n,Cough\n3,caf\xe9\n4\n"
    table.write_bytes(b"id,text\n1,Narcan\n" + bad + b"5,clonidine\n")
    done = bioel("link", model, table, "--skip-bad", report)
    assert [row["id"] for row in done.rows] == ["1", "5"]
    header, *rows = [line.split("\t") for line in report.read_text("utf8").splitlines()]
    assert [(row[1], row[2]) for row in rows] == [
        *[("3", "B510"), ("4", "B511"), ("5", "B511"), ("6", "B103"), ("7", "B510")],
    ]
    assert f"5 bad records skipped, see {report}" in done.err
    assert [n for n in range(1, 9) if f"line {n}:" in done.err] == [3, 4, 5]  # the first few
    # Without bad rows, the report has only its header.
    table.write_text("id,text\n1,Narcan\n")
    assert "0 bad records skipped" in bioel("link", model, table, "--skip-bad", report).err
    assert report.read_text("utf8").splitlines() == ["\t".join(header)]
    table.write_text("id,text\n1,Narcan,x\n")
    assert "[B400]" in bioel("link", model, table, "--skip-bad", report, status=2).err
    assert len(report.read_text("utf8").splitlines()) == 2


def test_tables_written_for_spreadsheets(bioel, model, tmp_path):
    source, out = tmp_path / "a.jsonl", tmp_path / "out.csv"
    source.write_text('{"id": "=1", "text": "Narcan"}\n')
    for options, start in (((), "'=1,"), (("--raw-csv",), "=1,")):
        bioel("link", model, source, "-o", out, *options)
        assert out.read_text("utf8").splitlines()[1].startswith(start)


def test_stdin(bioel, model, monkeypatch):
    from_stdin(monkeypatch, b"clonidine\n\nNarcan")
    rows = bioel("link", model, "-").rows
    assert [(row["id"], row["links"][0]["id"]) for row in rows] == [
        ("1", "MESH:D003000"),
        ("3", "MESH:D009270"),
    ]
    from_stdin(monkeypatch, b"clonidine\n\nNarcan")
    row = bioel("link", model, "-", "--format", "whole").json
    assert (row["id"], [link["start"] for link in row["links"]]) == ("stdin", [0, 11])
    from_stdin(monkeypatch, b" \n\n")
    assert "[B142]" in bioel("link", model, "-", status=2).err


def test_gold_in_the_file_changes_no_prediction(bioel, model, corpus, tmp_path):
    bare = tmp_path / "bare.txt"
    lines = corpus.read_text("utf8").splitlines(keepends=True)
    bare.write_text("".join(line for line in lines if "\t" not in line), encoding="utf8")
    assert (len(lines), bare.read_text("utf8").count("\n")) == (11, 5)
    found = bioel("link", model, corpus)
    assert found.out.count("MESH:D009270") == 6  # id, ids and candidate, twice
    assert bioel("link", model, bare).out == found.out
    # Nor is it an error if it is wrong.
    corpus.write_text(corpus.read_text().replace("1\t0\t8\tNaloxone", "1\t1\t900\tNalorphine"))
    assert bioel("link", model, corpus).out == found.out


def test_a_record_without_a_text_fails_alone(bioel, model, tmp_path):
    source = tmp_path / "some.jsonl"
    wrong = {"pmid": 8, "text": "Naloxone", "mentions": [{"start": 5, "end": 99}]}
    source.write_text(f'{{"id": "7", "text": null}}\n{json.dumps(wrong)}\n{{"title": "x"}}\n')
    rows = bioel("link", model, source, "--format", "jsonl", status=1).rows
    codes = [row["error"] and row["error"]["code"] for row in rows]
    assert [row["id"] for row in rows] == ["7", "8", "3"] and codes == ["B190", None, "B190"]
    # A format without a place for errors leaves it out.
    done = bioel("link", model, source, "-o", tmp_path / "a.csv", status=1)
    assert "Document 7 failed: [B190]" in done.err
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2


@needs("clinical")
def test_a_folder_of_texts(bioel, model, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "b.txt").write_bytes(b"Narcan\r\nwas given.\n")
    (folder / "a.txt").write_text("\ufeffNothing here.", encoding="utf8")
    (folder / "c.txt").write_bytes(b"caf\xe9")
    (folder / "d.txt").write_text("")
    (folder / "a.ann").write_text("no line of BRAT")
    (folder / "e.txt.gz").write_bytes(gzip.compress(b"He took\r\nNarcan."))
    rows = bioel("link", model, folder, status=1).rows
    assert [row["error"] and row["error"]["code"] for row in rows] == [
        None,
        None,
        "B251",
        None,
        None,
    ]
    assert [(row["id"], row["text"], found_in(row)) for row in rows if not row["error"]] == [
        ("a", "Nothing here.", []),
        ("b", "Narcan\r\nwas given.\n", [("Narcan", "MESH:D009270")]),
        ("d", "", []),
        ("e", "He took\r\nNarcan.", [("Narcan", "MESH:D009270")]),
    ]
    (folder / "E.txt").write_text("Another document.")
    assert len(bioel("link", model, folder, status=1).rows) == 6
    for name in ("a.TXT", "a.txt.gz"):
        (folder / name).write_bytes(gzip.compress(b"Narcan"))
        refused = bioel("link", model, folder, status=2)
        assert "[B513]" in refused.err and name in refused.err and "a.txt" in refused.err
        (folder / name).unlink()
    (folder / "E.txt").unlink()
    (folder / "F.TXT").write_bytes("Narcan".encode("utf-16"))
    (folder / "sub").mkdir()
    (folder / "sub" / "g.txt").write_text("Narcan")
    done = bioel("link", model, folder, status=1)
    assert f"[W304] {folder}: files left out: 2." in " ".join(done.err.split())
    messages = {row["id"]: row["error"]["message"] for row in done.rows if row["error"]}
    assert messages == {
        "F": "Character 0 of the text is byte 0xff, which is not UTF-8. Convert the file, "
        "for example: iconv -f utf-16 -t utf8 FILE > OUT, or leave the document out.",
        "c": "Character 3 of the text is byte 0xe9, which is not UTF-8. Convert the file, "
        "for example: iconv -f windows-1252 -t utf8 FILE > OUT, or leave the document out.",
    }
    one = bioel("link", model, folder / "e.txt.gz", "--preset", "clinical").json
    assert (one["id"], found_in(one)) == ("e", [("Narcan", "MESH:D009270")])


@needs("clinical")
def test_a_note(bioel, model, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("He was given\nNarcan. His father had\nnaloxone.\n", encoding="utf8")
    links = bioel("link", model, note, "--preset", "clinical").json["links"]
    assert [(link["text"], link["context"]["experiencer"]) for link in links] == [
        ("Narcan", "patient"),
        ("naloxone", "family"),
    ]
    assert "[W303]" in bioel("link", model, note, "--context", "-o", tmp_path / "a.pubtator").err
    with pytest.raises(BioelError, match="B662"):
        spacy_bioel.load(preset="surgical")


def test_a_hard_wrapped_file_that_is_read_line_by_line_is_noted(bioel, model, tmp_path):
    line = "The patient was given Narcan because he had taken too many\n"
    (tmp_path / "note.txt").write_text("tablets " + (line + "of another drug and ") * 4, "utf8")
    (tmp_path / "lines.txt").write_text(line * 6 + "fever\ncough\nrash\npain\n", "utf8")
    said = " ".join(bioel("link", model, tmp_path / "note.txt").err.split())
    assert said.count("[W390]") == 1 and "add --format whole" in said
    assert "[W390]" not in bioel("link", model, tmp_path / "lines.txt").err
    whole = bioel("link", model, tmp_path / "note.txt", "--format", "whole")
    assert "[W390]" not in whole.err and len(whole.json["links"]) == 4


def test_utf16_is_refused(bioel, model, tmp_path):
    (tmp_path / "notes.txt").write_bytes("Narcan\n".encode("utf-16"))
    said = bioel("link", model, tmp_path / "notes.txt", status=2).err
    assert "[B103]" in said and "iconv -f utf-16 -t utf8" in " ".join(said.split())


@pytest.mark.parametrize("n_process", [1, 2])
def test_a_byte_that_is_no_utf8_is_the_error_of_its_document(bioel, model, tmp_path, n_process):
    source = tmp_path / "notes.txt"
    source.write_bytes(b"Narcan\nNarcan \xff and caf\xc3\xa9\nclonidine\n")
    options = ("--format", "text", "--n-process", n_process)
    done = bioel("link", model, source, *options, status=1)
    assert "3 documents, 2 mentions, 0 of them NIL.\n1 document failed" in done.err
    first, second, third = done.rows
    assert [first["links"][0]["id"], third["links"][0]["id"]] == ["MESH:D009270", "MESH:D003000"]
    assert (second["id"], second["text"], second["links"]) == ("2", "Narcan \ufffd and café", [])
    assert second["error"]["code"] == "B251"


def test_one_run_writes_several_formats(bioel, model, notes, tmp_path):
    names = ["a.pubtator", "a.bioc.xml", "a.bioc.json", "a.jsonl", "a.ann"]
    more = ["a.json", "a.csv", "a.html"]
    outputs = [part for name in [*names, *more] for part in ("-o", tmp_path / name)]
    bioel("link", model, notes, *outputs)
    for name in names:
        found = [
            (text.id, [(m.start, m.end, m.label, m.ids) for m in text.mentions])
            for text in read_corpus(tmp_path / name)
        ]
        assert found == [
            ("1", [(0, 6, "D", ("MESH:D009270",))]),
            ("3", []),
            ("4", [(0, 9, "D", ("MESH:D003000",)), (14, 20, "D", ("MESH:D009270",))]),
        ]
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "a.json").read_text()) == rows
    line = (tmp_path / "a.csv").read_text().splitlines()[1]
    assert line.startswith("1,0,6,Narcan,D,MESH:D009270,Naloxone,Narcan,0.95")
    page = (tmp_path / "a.html").read_text()
    assert (
        '"name": "Narcan", "evidence": "exact", "preferred": "Naloxone"' in page
        and "Nothing here." in page
    )


def test_an_output_that_fails_leaves_none_behind(bioel, model, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "1", "text": "Narcan"}\n{"id": "a|b", "text": "Narcan"}\n')
    outputs = ("-o", tmp_path / "a.ann", "-o", tmp_path / "a.csv", "-o", tmp_path / "a.pubtator")
    shown = bioel("link", model, source, *outputs, status=2).err
    assert "[B342]" in shown and "a.ann.partial has 1 linked document." in shown
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a.ann.partial", source]
    source.write_text(source.read_text().replace("a|b", "2"))
    bioel("link", model, source, *outputs, "--resume")
    assert (tmp_path / "a.csv").read_text().count("\n") == 3


@pytest.mark.parametrize("n_process", [1, 2])
def test_given_mentions(bioel, model, corpus, tmp_path, n_process):
    out = tmp_path / "out.pubtator"
    argv = ("--mentions", "given", "-o", out, "--n-process", n_process, "--batch-size", 1)
    bioel("link", model, corpus, *argv)
    assert out.read_text() == (
        "1|t|Naloxone and clonidine.\n"
        "1|a|Narcan raises it.\n"
        "1\t0\t8\tNaloxone\tChemical\tMESH:D009270\n"
        "1\t13\t22\tclonidine\tChemical\tMESH:D003000\n"
        "1\t24\t30\tNarcan\tChemical\tMESH:D009270\n"
        "\n"
        "2|t|Hypertension.\n"
        "2|a|Or pressure disease of rats.\n"
        "2\t0\t12\tHypertension\tDisease\tMESH:D006973\n"
        "2\t17\t33\tpressure disease\tDisease\t-\n"
        "2\t37\t41\trats\tSpecies\t-\n"
        "\n"
    )


def test_given_mentions_without_any(bioel, model, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "Narcan"}\n')
    assert "[W302]" in bioel("link", model, tmp_path / "in.jsonl", "--mentions", "given").err


def test_a_knowledge_base_for_one_label(bioel, by_label, notes, tmp_path):
    notes.write_text("Narcan for hypertension of rats.\n")
    build_kb([Concept("ORG:1", ("rats",)), Concept("ORG:2", ("Narcan",))], tmp_path / "organs")
    assert [x["id"] for x in bioel("link", by_label, notes).json["links"]] == [
        *("MESH:D009270", "MESH:D006973", None)
    ]
    added = "--kb", f"Species={tmp_path / 'organs'}"
    expected = ["MESH:D009270", "MESH:D006973", "ORG:1"]
    rows = bioel("link", by_label, notes, *added, "--n-process", 2).rows
    assert [x["id"] for x in rows[0]["links"]] == expected
    # Another one for a label that has one, and a bundled one.
    other = "--kb", f"Chemical={tmp_path / 'organs'}"
    rows = bioel("link", by_label, notes, *added, *other).rows
    assert [x["id"] for x in rows[0]["links"]] == ["ORG:2", *expected[1:]]
    assert "[B020]" in bioel("link", by_label, notes, "--kb", "Species=no", status=2).err
    done = bioel("link", by_label, notes, "--kb", tmp_path / "organs", status=2)
    assert "[B323]" in done.err and f"--kb Anatomy={tmp_path / 'organs'}" in done.err


def test_names_of_several_knowledge_bases_with_cross_references(bioel, tmp_path):
    kbs = []
    for name, id in (("Narcan", "D:1"), ("Fever", "S:1")):
        record = {"id": id, "names": [name], "xrefs": [f"MSH:{name}"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(record) + "\n")
        kbs.append(tmp_path / name)
        bioel("kb", "build", kbs[-1], tmp_path / f"{name}.jsonl")
    (tmp_path / "a.txt").write_text("Fever after narcan.\n")
    row = bioel("link", kbs[0], tmp_path / "a.txt", "--kb", kbs[1], "--xrefs").json
    found = [(x["text"], x["label"], x["id"], x["candidates"][0]["xrefs"]) for x in row["links"]]
    assert found == [
        ("Fever", "Fever", "S:1", ["MSH:Fever"]),
        ("narcan", "Narcan", "D:1", ["MSH:Narcan"]),
    ]
    row = bioel("link", kbs[0], tmp_path / "a.txt").json
    assert [(x["id"], sorted(x["candidates"][0])) for x in row["links"]] == [
        ("D:1", ["evidence", "id", "name", "score"])
    ]


def test_convert_to_spacy_and_back(bioel, corpus, tmp_path):
    out = tmp_path / "new" / "gold.spacy"
    done = bioel("convert", corpus, out, "--prefix", "MESH", "--json", "-")
    assert done.json == {"documents": 2, "mentions": 6, "widened": 0, "lost": []}
    doc = next(DocBin().from_disk(out).get_docs(spacy.blank("en").vocab))
    spans = [(span.text, span.label_, span.kb_id_) for span in doc.spans["bioel_gold"]]
    assert spans[0] == ("Naloxone", "Chemical", "MESH:D000001")
    from_spacy = list(read_texts(out, format=None, prefix=""))
    assert from_spacy == list(read_texts(corpus, format=None, prefix="MESH"))


def test_convert_counts_what_tokens_cannot_represent(bioel, tmp_path):
    source, out = tmp_path / "texts.jsonl", tmp_path / "out.spacy"
    mention = {"start": 0, "end": 4, "label": "D", "ids": ["X:1"]}
    source.write_text(json.dumps({"id": "7", "text": "cancerous", "mentions": [mention]}) + "\n")
    shown = bioel("convert", source, out).err
    assert "1 mention: 1 widened to tokens, 0 lost." in shown
    assert f"{source}: 1 document written to {out}." in shown
    shown = bioel("convert", source, out, "--no-widen").err
    assert "0 widened to tokens, 1 lost" in shown and "lost: 7:0-4 'canc'" in shown


def test_convert_to_jsonl(bioel, corpus, tmp_path):
    out = tmp_path / "gold.jsonl"
    done = bioel("convert", corpus, out, "--prefix", "MESH", "--json", "-")
    assert done.json == {"documents": 2, "mentions": 6} and "6 mentions." in done.err
    assert json.loads(out.read_text().splitlines()[0])["mentions"][1] == {
        **{"start": 13, "end": 22, "label": "Chemical", "ids": ["MESH:D003000"]}
    }


def test_given_offsets_outside_the_text(bioel, model, tmp_path):
    source, good, out = tmp_path / "imp.jsonl", tmp_path / "good.jsonl", tmp_path / "out.jsonl"
    ends = {"Narcan": 6, "Clonidine": 90}
    lines = [
        {"text": text, "mentions": [{"start": 0, "end": end, "label": "Chemical"}]}
        for text, end in ends.items()
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = bioel("link", model, source, "-o", out, "--mentions", "given", status=2).err
    assert "[B105]" in shown and "line 2" in shown and not out.exists()
    report = tmp_path / "bad.tsv"
    argv = ("link", model, source, "--mentions", "given", "--skip-bad", report)
    assert "bioel convert INPUT OUT.jsonl --skip-bad" in bioel(*argv, status=2).err
    bioel("convert", source, good, "--skip-bad", report)
    bioel("link", model, good, "-o", out, "--mentions", "given")
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == ["Narcan"]
