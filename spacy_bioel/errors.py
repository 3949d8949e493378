"""Error and warning messages of the engine, one per line, sorted by code.

Messages of a plugin are in its `errors.py`, in subclasses of `Errors` and `Warnings`; no code is used
twice. A new message takes a free code near related messages: B02x knowledge base, B05x pipes,
B10x-B14x file formats, B15x-B17x transformers, B18x vectors, B20x-B21x changed or damaged knowledge
bases, B38x-B39x services, W for warnings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import TracebackException

LOGGER = logging.getLogger("spacy_bioel")


class _Coded(type):
    """Metaclass that prefixes messages with their codes: Errors.B020 -> "[B020] ..."."""

    def __getattribute__(cls, name: str) -> str:
        value = super().__getattribute__(name)
        return value if name.startswith("__") else f"[{name}] {value}"


class BioelError(ValueError):
    """Error in an input or a setting; the message states the problem and its remedy."""


def shortened(text: str, max_length: int = 80) -> str:
    """Shorten a text that may quote a document, so that messages and logs never contain one."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def crash_report(error: BaseException, *, max_length: int = 80) -> str:
    """Format a traceback with error messages shortened to `max_length`; 0: without messages."""
    report = TracebackException.from_exception(error)
    part: TracebackException | None = report
    while part is not None:
        part._str = shortened(str(part), max_length) if max_length else ""  # type: ignore[attr-defined]
        part = part.__cause__ or part.__context__
    return "".join(report.format())


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import an extra's packages for a feature. RAISES BioelError: [B192] if one is missing."""
    try:
        yield
    except ImportError as error:
        raise BioelError(Errors.B192.format(what=what, extra=extra, error=error)) from error


class Errors(metaclass=_Coded):
    B020 = "No knowledge base in {path}: expected a folder with a file such as kb.0001.safetensors. Check the path, or build one: bioel kb build {path} SOURCE. Bundled ones are called starter:mesh, starter:genes, starter:species and starter:cells."
    B021 = "The knowledge base in {path} has schema version {found}, but this version of spacy-bioel expects {expected}. Install the version that built the knowledge base, or build it again: bioel kb build {path} SOURCE"
    B022 = "The names in {path} were normalised by version {found} of the normaliser, but this spacy-bioel has version {expected}, so lookups would miss names. Build the knowledge base again: bioel kb build {path} SOURCE"
    B023 = "Column {file} of the knowledge base in {path} is missing or from another knowledge base: expected {expected}; found {found}. Copy the folder again, or build it again: bioel kb build {path} SOURCE"
    B024 = "{file} in {path} is damaged: expected checksum {expected}, found {found}. Copy the folder again, or rebuild it: bioel kb build {path} SOURCE; for vectors: bioel kb encode {path} MODEL"
    B025 = "The bytes are not a complete knowledge base: expected the result of KnowledgeBase.to_bytes(), found {found}. Save the pipeline again."
    B026 = "In {where}, the {field} is {found!r}: expected text other than NIL, without white space or '|', such as MESH:D003920. Correct the source."
    B027 = "Retired ids replace each other in a circle: {cycle}. Expected a chain that ends at a current id. Correct the source."
    B028 = "None of the {records} records is kept: {by_type} concepts were dropped by the type filter, {by_branch} are outside the branches to keep, {nameless} have no name. Requested types: {asked}; most frequent types in the source: {seen}. Check the filters."
    B029 = "{path} exists and is not a knowledge base: expected a file such as kb.0001.safetensors. It was not overwritten. Choose another path, or remove it first."
    B030 = "{file} in {path} is not readable ({error}). Copy the folder again, or rebuild it: bioel kb build {path} SOURCE; for vectors: bioel kb encode {path} MODEL"
    B031 = "The knowledge base in {path} has vectors from encoder {found}, but none from this pipeline's encoder, {expected}. Run bioel kb encode {path} MODEL with this pipeline as MODEL; the other vectors are kept."
    B032 = "The knowledge base in {path} has no vectors for its names. Run: bioel kb encode {path} MODEL"
    B033 = "{file} in {path} is missing or from another knowledge base: expected {expected}; found {found}. Run bioel kb encode {path} MODEL again."
    B034 = "The vectors in {path} were made for the names of knowledge base {found}, but this knowledge base is {expected}. Run: bioel kb encode {path} MODEL"
    B035 = "The encoder returned {found} for the names {first!r} ... {last!r}: expected finite numbers of shape {expected}. Check its weights and its width."
    B036 = "The index was searched with {found}, expected {expected}. Encode the queries with the encoder that made the vectors, and give each mask one value per name."
    B037 = "The knowledge base in {path} was replaced while a process was using it: expected fingerprint {expected}, found {found}. Load the pipeline again."
    B040 = "This needs a package from the `train` extra, which cannot be imported ({error}). Run: pip install 'spacy-bioel[train]' (in a copy of the repository: pip install -c constraints.txt '.[train]')"
    B041 = "The weights do not fit the model: {reason}. Load them with the config they were saved with. If another version of the package saved them, train the pipeline again; if the file is truncated, copy the model folder again."
    B042 = "{path} is missing: the model folder is incomplete. Copy the whole folder again."
    B043 = "{folder} has no {missing}: expected a Hugging Face BERT checkpoint with model.safetensors and a WordPiece tokenizer."
    B044 = "{folder}: the embedding table has {rows} rows and the vocabulary {pieces} pieces, expected the same number of each. They come from different checkpoints: copy the whole checkpoint again."
    B045 = "Unknown pooling {pooling!r}. Choose 'max' or 'attention'."
    B046 = "{folder} does not contain an encoder ({reason}). Train one: python training/scripts/pretrain.py"
    B047 = "The encoder in {folder} has the settings {found}, but the config has {expected}. Set the linker's [model] block to the encoder's settings."
    B050 = "Cannot add the label {label!r}: the network was built for {labels}. Add labels before initialize."
    B051 = "No example has a gold mention in doc.spans[{key!r}]. Convert the corpus with `bioel convert`."
    B052 = "doc.spans[{key!r}] has a span without a link record: {text!r:.80} at {place}. Run bioel_linker after all pipes that add spans."
    B053 = "The {name!r} pipe is not trained. Train it with `spacy train`, or load a trained pipeline with spacy.load."
    B056 = "{path} is missing: the pipeline was saved with its knowledge base. Copy the whole model folder again."
    B057 = "The link at characters {start}-{end} does not start and end at token boundaries. Run the linker after any retokenisation."
    B058 = "A file in {path} is truncated or damaged ({error}). Copy the whole model folder again."
    B059 = "Some parts of the {name!r} pipe were replaced by a load that failed. Load a whole model folder into it, or create the pipeline again with spacy.load."
    B060 = "{path} is not a readable .spacy file ({error}). Convert the corpus again with `bioel convert`."
    B063 = "A bundled knowledge base cannot be written to {folder} ({error}). Set the environment variable {variable} to a writable folder."
    B066 = "All evidence is switched off, so no mention can be linked. Keep at least one of {known} on."
    B070 = "--columns contains '{part}', expected KEY=COLUMN. Use, for example, --columns id=1,name=2, with column numbers from 1 or names from the header."
    B071 = "The pipeline '{model}' cannot be loaded. Specify a folder saved by spaCy, a knowledge base (built from an ontology or a table: bioel kb build OUT SOURCE), or the name of an installed package. spaCy reports: {error}"
    B072 = "The pipeline '{model}' has no bioel_linker; its pipes are: {pipes}. Use a pipeline with a linker, or a protocol without links."
    B074 = "The output format of {path} is unknown. Choose a name that ends in .spacy or .jsonl."
    B075 = "Unknown tokenizer '{tokenizer}' for the language '{lang}'. Specify a registered one, e.g. spacy.Tokenizer.v1 or spacy-bioel.BioTokenizer.v1. spaCy reports: {error}"
    B076 = "{path} has no gold mentions (documents: {n}): expected at least one. Check the file and --format; documents without mentions (negative examples) can be in one file with others. To find mentions, use bioel link."
    B077 = "{known:,} of {n:,} gold ids in {path} are in the knowledge base, whose ids look like {example} (missing: {first}). {hint}"
    B081 = "Unknown protocol '{name}'. Choose from: {known}."
    B082 = "The {name!r} pipe has no knowledge base: its `kb` setting is empty, and the pipeline has no bioel_linker. Add one, or set `kb`."
    B083 = "The {name!r} pipe comes after {earlier!r}, which writes to the same span group {key!r}, and would drop its links or names. Add it before the linker (nlp.add_pipe('bioel_names', before='bioel_linker')), set another spans_key, or list all knowledge bases in the `kb` setting of one pipe."
    B084 = 'The {name!r} pipe finds no unambiguous names: the pipeline has no bioel_linker whose labels have semantic types or a knowledge base of their own. Set `label_types`, or `kb` by label, of a linker; or set names = "all".'
    B101 = "There is no file {path}. Check the path."
    B102 = "{path} is empty, expected at least one record. Create or download it again."
    B103 = "{path}, line {line}: {found} is not valid UTF-8. Convert the file to UTF-8, for example: iconv -f {likely} -t utf8 {path} > OUT"
    B104 = "{path} is a damaged archive ({error}). Download or compress it again."
    B105 = "{where}: offsets {start}-{end} are empty or outside the text, which has {length} characters. Offsets count characters from 0, the end is exclusive. Correct them."
    B106 = "{where}: the text at offsets {start}-{end} is {found!r:.80}, but the annotation has {expected!r:.80}. Offsets count characters, not bytes. Check that the text and its encoding are unchanged."
    B107 = "{where}: found {n} column(s) ({row!r}), expected six, separated by tabs: document id, start, end, mention, type, concept ids (the last column may be missing)."
    B108 = "{where}: expected the text row id|{kind}|..., found {row!r}. A document is a title row (|t|), an abstract row (|a|), then its mentions."
    B109 = "{where}: expected document id {expected!r:.80}, found {found!r}. Separate documents with a blank line."
    B110 = "{where}: expected two numbers, start and end, found {found!s:.80}. Correct the row."
    B111 = "{where}: not well-formed XML ({error}). Download the file again."
    B112 = "{where}: not valid BioC ({error}). Compare it with BioC.dtd."
    B113 = "{where}: the passage at offset {offset} starts before the previous passage ends, at {length}. Offsets count characters from the start of the document. Correct them."
    B114 = "{where}: the annotation has no location, expected an offset and a length. Add a location, or remove the annotation."
    B115 = "{path} is not a BioC collection: {found}. Check the format."
    B116 = "{where}: expected {expected}, found {row!r}. Correct or remove the line."
    B117 = "{path} is {found}, not text. Save its text as OUT.txt in the program that opens it, or run: pdftotext {path} OUT.txt (for a PDF), soffice --convert-to txt:Text {path} (for others). Then use that file; --format whole reads it as one document."
    B119 = "{path} cannot be parsed as OWL or OBO JSON: {error}. Check it with ROBOT."
    B120 = "{path}: expected a JSON object of terms (id -> label, synonyms, ancestors), found {found}. Check the format."
    B121 = "{path} is not MeSH XML: expected a DescriptorRecordSet or a SupplementalRecordSet. Use descYYYY.xml or suppYYYY.xml."
    B122 = "{path}: a record lacks {kind}UI or {kind}Name (id {ui!r}, name {name!r}). Download the file again."
    B123 = "{folder} has no {name} (or {name}.gz or {name}.zst), expected {of}. Check the path."
    B124 = "{where}: {cui} comes after {previous}, expected rows sorted by CUI. Sort the file, for example: LC_ALL=C sort FILE > OUT"
    B125 = "{where}: found {n} column(s), expected {expected}, separated by '|'. The file may be truncated: copy it again."
    B126 = '{where}: broken quoting in a row that ends in line {end} ({error}). In a cell that begins with a double quote, double all other quotes ("So-called ""fit"""), and close the first. To leave out such rows: --skip-bad REPORT.tsv'
    B127 = "{path}: the column keys are {found}, expected 'id' and any of {known}. Correct them."
    B128 = "{path} has no column {missing}; its header is {header!s:.80}. Use names from it."
    B129 = "{where}: expected an id with a name or with the id that replaces it, found id {id!r}. Correct the row. To leave out such rows: --skip-bad REPORT.tsv"
    B130 = "{path} is not a CTD vocabulary: expected a comment line with DiseaseName or ChemicalName and the other columns. Use CTD_diseases or CTD_chemicals, unchanged."
    B131 = "{where}: expected one JSON object on the line, found {found}. Correct the line; for an array over several lines: jq -c .[] FILE > OUT.jsonl"
    B132 = "{where}: {problem}. Correct the record."
    B133 = "The format of {path} is not recognised; the file begins with {head!r}. Specify the format with --format: {known}."
    B134 = "Unknown format '{format}'. Choose from: {known}."
    B135 = "{path}: {options} cannot be used with the format '{format}': columns and a synonym separator are for tables, vocabularies for OMOP. Leave out one of the two."
    B136 = "{path} has a column {found!r}, which is not read, and no column {key!r}. If that is meant, rename it; or choose the columns, with or without it: --columns {columns}"
    B140 = "{where}: the concept id column is empty ({row!r}). Write the id, or -1 for a mention without an id. If the file is truncated there, copy it again."
    B141 = "{path}: expected a header with the column 'id', found {header!s:.80}. Describe the columns, by number or header: --columns id=1,name=2."
    B142 = "{source} has no text, expected one document per line, or in a table, rows below the header. Check the path or the pipe."
    B173 = 'spacy-bioel.Transformer.v1 is inside the model {name}, which does not save its checkpoint. Make it the model of a tok2vec pipe before bioel_mentions, and give bioel_mentions a spacy.Tok2VecListener.v1 of the same width with upstream = "tok2vec".'
    B174 = "The model {model} listens to the tok2vec pipe, which did not run on this document. Keep tok2vec enabled and before the pipes that listen to it; if those pipes are in annotating_components, add tok2vec there too."
    B182 = "The vectors of the knowledge base in {path} cannot be written ({error}); earlier vectors are unchanged. Free disk space, or make the folder writable, then run bioel kb encode {path} MODEL"
    B184 = "The approximate index of the vectors cannot be read ({error}). Run bioel kb compact KB, then bioel kb encode KB MODEL."
    B190 = "The document's text has type {found}, expected a string. Correct the source, or leave the document out."
    B191 = "There is no column {missing!r}; the columns are {columns:.80}. Rename a column, or specify other names."
    B192 = "{what} needs packages from the {extra} extra, which cannot be imported ({error}). Run: pip install 'spacy-bioel[{extra}]' (in a copy of the repository: pip install -c constraints.txt '.[{extra}]')"
    B195 = "{path} is not a readable Parquet file ({error}). Check the file, or copy it again."
    B196 = "--engine {engine} does not support {found}, expected {expected}. Change the command line, or leave --engine out."
    B198 = "The output format of {path} is unknown. Choose a name that ends in one of: {known}."
    B200 = "The knowledge base in {path} has no concept {id!r} (its first id is {first}). Check the id and its prefix; nothing was changed."
    B201 = "{id!r} is already retired in the knowledge base in {path}, replaced by {current}. Leave it out; nothing was changed."
    B203 = "The knowledge base in {path} cannot be written ({error}); it is unchanged. Free disk space, or make the folder writable, and run the command again."
    B210 = "{file} in {path} was changed after it was written: expected {expected}, found {found}. Copy the folder again, or rebuild it: bioel kb build {path} SOURCE; for vectors: bioel kb encode {path} MODEL"
    B211 = "{file} of the knowledge base in {path} is damaged: expected {expected}, found {found}. Copy the folder again (check it: bioel kb info {path} --verify), or build it again: bioel kb build {path} SOURCE"
    B212 = "The knowledge base in {path} is being changed by {holder}. Wait until it finishes, then run this command again; nothing was changed."
    B240 = "{file} of the saved model is damaged ({error}). Copy the whole model folder again, or train the model again."
    B250 = "A worker process died ({how}); the other processes were stopped, and no more texts are linked. If memory ran out, use fewer workers: --n-process 1 (n_process=1)."
    B251 = "Character {place} of the {what} is {found}, or leave the document out."
    B252 = "{path} cannot be read or written: {reason}. Check the path, its permissions and the free space on the disk; existing files are unchanged."
    B260 = "{path} is XML in an unsupported encoding ({error}). Convert it to UTF-8, and correct the encoding in its first line."
    B261 = "{where}: a passage begins at offset {offset}, after {n} characters of text: expected at most {most} missing characters. Offsets count characters from the start of the document. Correct them."
    B262 = "{path}: column {column} is specified for {key!r}, expected a number from 1 to {n}. Correct the number."
    B263 = "{path} is BRAT standoff without {missing}: expected the text in NAME.txt and the annotations in NAME.ann, in the same folder. Put both there."
    B264 = "{where}: {row!r} is not a BRAT line: expected 'T1<tab>Disease 0 5<tab>words', 'N1<tab>Reference T1 MESH:D003920<tab>name', or a line that starts with R, E, M, A, * or #. Correct the line."
    B265 = "{where}: the line refers to {key}, which is not in the file. Correct the line."
    B270 = "Invalid settings for {pipe}:\n{wrong}\nCorrect them; until then the pipe cannot be used or saved."
    B271 = "The linkers {first!r} and {second!r} both write to the span group {key!r}. Set a different group for one of them: nlp.add_pipe('bioel_linker', name={second!r}, config={{'spans_key': {second!r}}})."
    B272 = "{file} of the saved linker contains {found}, expected {expected}. Copy the whole pipeline again, or save it again."
    B301 = 'mentions = "model" asks the model of bioel_linker to find mentions, but {model} cannot; expected spacy-bioel.HierarchicalLinker.v1. Set mentions = "spans" and add bioel_mentions before it.'
    B310 = "The sources have no concept {id!r}, current or retired: expected the id of a concept whose branch is kept (--under) or left out (--exclude). {hint}"
    B320 = "The knowledge base of this candidate (fingerprint {found}) is not open in this process, so the candidate's fields cannot be read. Keep the pipeline that made the link, or open the folder: KnowledgeBase.open(KB)."
    B321 = 'kb = {found!r}: expected a folder; a list of folders, for mentions of all labels; or a folder for each label, such as {{"Disease": "kb/mondo", "Phenotype": "kb/hp"}}. Correct it.'
    B322 = "A joined knowledge base ({path}) has no folder to write to. Write to each of its parts, or build one from all sources: bioel kb build OUT SOURCE..."
    B323 = "{model} is a pipeline, which has its own knowledge bases. Specify for which label {kb} is added to them, such as --kb Anatomy={kb}; or specify a knowledge base as MODEL (a folder, or a bundled one such as starter:mesh)."
    B324 = "{path}: {option} works only with JSON lines and JSON. Write to OUT.jsonl, or leave the option out."
    B325 = "{folder} cannot be added for the label {label}, because MODEL does not list a knowledge base for each label. Leave the label out (--kb {folder}), or list a folder for each label in the `kb` setting of its linker."
    B330 = "{path}, document {id!s:.80}: a mention is labelled {found}, but the corpus is declared to annotate {annotates}. Add the label to `annotates`, or rename or drop it (`labels` in corpora.yml)."
    B331 = "No document annotates {labels}, so it cannot be learned. Leave the label out, or add a corpus whose `annotates` includes it."
    B334 = "There is no bundled knowledge base {found}. Choose one of {known} (see `bioel kb list`), or specify a folder that `bioel kb build` wrote."
    B335 = "Expected [MODEL] INPUT: a pipeline or knowledge base (default: the starter), then one file or folder of texts; found: {found}. To link to an ontology, first build a knowledge base: bioel kb build OUT SOURCE. For several files, run several commands, or `cat` the files to -."
    B337 = "There is no concept {id!r:.80} in the knowledge base {kb}, current or retired. One of its ids is {example}.{hint} Check the id, or search by name."
    B338 = "The text does not contain {mention!r:.80}. Specify text that occurs in it; case does not matter."
    B339 = "{mention!r:.80} begins or ends inside a token of the text, but a mention consists of whole tokens. Use {around!r:.80}."
    B340 = "{where}: {key} appears twice, expected a unique key for each mention. Renumber the lines in the file."
    B341 = "{path} exists, expected a new or empty folder for the files of documents or patients. Remove it, or choose another name."
    B342 = "PubTator cannot store the document id {id!r:.80}: a bar, a tab or a line break would break its rows. Change the id, or write another format, such as OUT.jsonl."
    B343 = "{format} cannot store the concept id {id!r:.80}: {found!r} separates ids there. Build the knowledge base with other ids, or write another format, such as OUT.jsonl."
    B344 = "--mentions given links the mentions of a corpus, but {source} is {found}. Use PubTator, BioC, BRAT, .spacy, or JSON lines with mentions; or leave the option out."
    B400 = "No record in {sources} is valid ({n} are bad), so nothing is written. {report} lists them. The first: {first}"
    B403 = "{id!r} in the knowledge base in {path} has no name {name!r}; its names are: {names}. Names are compared ignoring case and punctuation; nothing was changed."
    B404 = "{name!r} is the only name of {id!r} in the knowledge base in {path}, and a concept needs a name. Add another with --add, or retire the concept: bioel kb retire; nothing was changed."
    B405 = "{name!r} has no letter or digit, so no text could match it. Correct the name; nothing was changed."
    B406 = "{id!r} is retired in the knowledge base in {path}, and {current} has its names. Edit {current} instead; nothing was changed."
    B407 = "{path} is a folder, expected a file. Specify a file in it. The only folders that can be sources are META of a UMLS release, with its MRCONSO.RRF, and a download from Athena, with its CONCEPT.csv."
    B408 = "{path} is a saved pipeline, expected a knowledge base. A pipeline's knowledge base is in a subfolder, such as {path}/bioel_linker/kb, unless it was saved with include_kb = false."
    B409 = "{path} is a bundled knowledge base, which this command cannot use: expected a folder. To change its contents, copy it (bioel kb copy starter:NAME OUT), or build a new one: bioel kb build OUT SOURCE"
    B410 = "Unknown language {lang!r}. With --lang, use a spaCy language code, for example en, de, fr or xx (several). spaCy reports: {error}"
    B411 = "The pipeline has neither bioel_mentions nor bioel_linker; its pipes are: {pipes}. Use a pipeline with one of these or a knowledge base, or leave MODEL out to use the starter."
    B440 = "Expected [MODEL] TEXT: a pipeline or knowledge base (default: the starter), then one text in quotes; found: {found:.80}."
    B441 = "{found!r:.80} is empty, a file or a folder; expected a text in quotes: bioel explain [MODEL] TEXT. To explain the text of a file: bioel explain [MODEL] - < FILE"
    B442 = "{id!r} in the knowledge base in {path} already has the name {same!r}, and {name!r} differs only in case or punctuation. Choose a new name; nothing was changed."
    B444 = "{path} has the columns {columns!s:.80}, expected a column 'text', and optionally 'id'. Rename the columns in the first row, or write one text per line to a file OUT.txt."
    B466 = "{path} has changed since it was saved: expected {expected}, found {found}. Copy the whole model folder again; if you changed the file yourself, remove {manifest} in its folder. To check all files: bioel verify"
    B467 = "The knowledge base of {name!r} is in memory only, and would be lost with include_kb = false. Set include_kb = true, or save the knowledge base: kb.save_to(folder), then set_kb(folder)."
    B468 = "{path} is neither a saved pipeline nor a knowledge base: expected a folder with config.cfg, or the output of bioel kb build. Check the path."
    B477 = "{path} contains {n:,} files, expected one (the first is {first}). Unpack it, and specify the file to read."
    B478 = "{path} unpacks to more than {limit:,} bytes, {ratio} times its size, which is implausible for text. If this is correct, unpack it first, and specify the unpacked file."
    B479 = "{where}: not a row of a table ({error}). Put cells with line breaks in quotes. A lone carriage return is not a line break; convert it: tr '\\r' '\\n' < FILE > OUT"
    B480 = "{found!r} contains half of a surrogate pair, or a byte that is not UTF-8, and cannot be written. Correct it; in a terminal, use a UTF-8 locale."
    B481 = "The folder {path} has no .txt or .txt.gz files: expected one for each document. If all documents are in one file, specify that file."
    B485 = "{path} is a symbolic link, and knowledge base files are not changed through links. Replace the link with its target, or move the whole folder {kb} and link to that folder."
    B493 = "{path} is also the input, which would be lost. Choose another name for the output."
    B497 = "The rules {rules} failed in {name}: {found}. Documents on which they failed are not linked; correct the rules, or leave them out: entities.NAME = null."
    B498 = "The rules {rules} added the span {span!r:.80}, expected four values: tokens [start, end) within a document of {n} tokens, a label, and a probability from 0 to 1. Correct their function `propose`."
    B499 = "The rules {first} and {second} both return a fact {fact!r}. Rename it in one of them, in `fact_names` and in `facts`."
    B500 = "The rules {rules} returned the candidate {id!r}, which is not in the knowledge base for mentions labelled {label!r}. Return concepts from that knowledge base; ids from other vocabularies need a score of 1."
    B501 = "The pipeline {model} refers to the function {name!r}, which is not registered in {registry!r}. Specify the file that registers it (--code FILE; in Python, import it first), or install the package that provides it as an entry point (spacy_{registry})."
    B502 = "The code in {path} cannot be imported: {error}. Correct it, or specify another file with --code: Python code that registers functions, such as entity rules."
    B503 = "The rules {rules} returned {found} results from `{name}`, expected {n}: one for each document or mention that they receive. Correct their function."
    B504 = "The rules {rules} returned a fact {fact!r} that is missing from their `fact_names`, so tables would not include it. Add it there."
    B505 = "A mention labelled {label}, at characters {place}, does not fit the tokens of the document, which were merged or split after the mention was found. Find the mentions again, or set the span group again: doc.spans[key] = [doc.char_span(start, end, label)]."
    B506 = "The rules {rules} declare a fact {fact!r}, which is already a field of every link or a Span extension of spacy_bioel. Rename it in `fact_names` and in `facts`."
    B507 = "The rules {rules} returned the facts {found}, expected a mapping with JSON values: strings, numbers, true, false, None, and lists and mappings of these. Convert NumPy numbers with .item(), and sets to lists."
    B508 = "The rules {rules} define `{old}`, which is no longer called. Define `{new}` instead; all concepts that share a name are candidates. See docs/guides/entity_rules.md."
    B510 = '{where}: number of cells: {found}, expected {expected}, as in the first row. In CSV, put a cell that contains the separator in double quotes ("Gout, fever"); otherwise, add the cells that are missing, or remove those left over. To leave out such rows: --skip-bad REPORT.tsv'
    B511 = "{where}: the id {id!r:.80} is {problem}, expected another id in each row. Correct it; or remove the column 'id': rows are then numbered. To leave out such rows: --skip-bad REPORT.tsv"
    B512 = "{path} has {n} columns with the name {name!r}, expected one. Rename or remove the others, so that it is clear which one to read."
    B513 = "{first} and {second} would be documents or patients with the same id, {id!r}. Rename or remove one of them."
    B514 = "{where}, column {column}: {problem}, so its text may not be what was typed. Format the column as text, and enter the cell again; paste formulas as values."
    B515 = "{path} has these sheets with contents: {names}; expected one. Remove the others, or save the right one as CSV."
    B516 = "--skip-bad applies to tables of texts (.csv, .tsv, .xlsx), and {source} is none, or its mentions are given. Leave the option out; for given mentions, `bioel convert INPUT OUT.jsonl --skip-bad REPORT.tsv` first leaves out the documents with errors."
    B517 = "{path} has a row with a number above {most:,}, the last row of a sheet in Excel. Save the workbook again with Excel or LibreOffice, or save the sheet as CSV."
    B520 = '{path} has mentions in several places, which differ: {found}. Choose the gold mentions with --spans-key KEY or --ents; in a config, spans_key = "KEY" or "doc.ents".'
    B521 = '{path} has no mentions in {asked}; it has {found}. Choose the gold mentions with --spans-key KEY or --ents; in a config, spans_key = "KEY" or "doc.ents".'
    B522 = "--spans-key and --ents choose the gold mentions in a .spacy file, but {problem}. Leave {option} out."
    B523 = "{where}: no mention was read, but the key {key!r} contains offsets. Expected mentions under 'mentions', 'links', 'spans', 'entities', 'label' or 'labels'. Rename the key to 'mentions', or remove it if it lists something else."
    B540 = "The config of {where} has wrong settings:\n{wrong}\nCorrect them in the config."
    B541 = "{model} is a knowledge base, so {options} cannot be applied: they are for saved pipelines and the starter. Change settings afterwards, in nlp.get_pipe('bioel_linker').cfg."
    B550 = "--resume needs all outputs to be files: {path} is not. Leave --resume out, or write to files with -o."
    B551 = "{path} has {n:,} linked documents of a run that was interrupted, or is still running. To continue that run, add --resume; to start again, delete the file."
    B552 = "{path} is from a run that differs in: {what}. Run the original command with --resume; to start again, delete the file."
    B553 = "Document {n} of the input is not the document that was linked before, according to {path}. Use the original input with --resume; to start again, delete the file."
    B554 = "{n} of {of} mentions are not linked; the offsets of the first are {place}. Expected integers with 0 <= start < end <= {length} around a word of the text, counted in characters. Correct them; the other mentions of the document are linked."
    B555 = "{path} is written for two options, and one result would be lost. Choose another name."
    B556 = "{path} was not written by `bioel link`, which keeps the links of interrupted runs in a file of this name. Rename the file, or choose another output."
    B606 = "{path} has no vocabulary {unknown}; it has {known}. Correct --vocabulary, or download the vocabulary from Athena."
    B637 = "The id {id!r:.80} was retired in the knowledge base {kb} without a replacement. Ids to consider instead: {others}. Choose one of them, or search by name."
    B641 = "The weight {key} contains infinity or NaN, so the model cannot be quantised. Train it again with a lower learning rate, or use an earlier checkpoint."
    B650 = "GPU {gpu_id} was not found: PyTorch {version} {found}. {remedy} (docs/guides/gpu.md), or use the CPU: leave out --gpu-id (in the project, --vars.gpu_id)."
    B651 = "PyTorch finds GPU {gpu_id}, but CuPy, which spaCy needs for it, cannot use it ({error}). Install the CuPy that fits PyTorch's CUDA {cuda}: pip install '{package}[ctk]>=14', or use the CPU: leave out --gpu-id (in the project, --vars.gpu_id)."
    B652 = "{n} processes cannot share a GPU that was in use before they started. Expected one process: leave out --n-process, and raise --batch-size; or start processes with multiprocessing.set_start_method('spawn')."
    B653 = "The GPU has too little memory ({error}). End other programs that use it (see nvidia-smi), or use smaller batches: for linking --batch-size 16, for serving --workers 1, for training a smaller size in [training.batcher]; or use the CPU: leave out --gpu-id (in the project, --vars.gpu_id)."
    B660 = "Two installed packages register the {what} {name!r}: {first} and {second}. Uninstall one of them."
    B661 = "The {what} {name!r} needs the plugin {plugin!r} of spacy-bioel, which this installation lacks. Install the whole package again: pip install --force-reinstall --no-deps spacy-bioel"
    B662 = "The {what} {name!r} is unknown. Registered are: {known}."
    B663 = "The {what} {name!r} cannot be used, because {module} cannot be imported ({error}). Install what is missing, or update or uninstall the package that contains it."


class Warnings(metaclass=_Coded):
    W060 = "{path}: {lost} of {n} mentions begin or end inside a token and are dropped: {first}. Use the tokenizer spacy-bioel.BioTokenizer.v1, or widen = true."
    W062 = "The fusion weights of the pipeline are for the features {found}, but this version has {expected}. The default weights are used instead. To fit new ones on development documents: bioel tune MODEL DEV OUT"
    W064 = "{kb} has {n} names and lacks vectors for them, so no encoder is used. To add vectors with the bundled encoder, run: bioel kb encode {kb} starter"
    W140 = "{path}: the last line is a mention without a line break. If the file is cut off inside its concept id, that id is wrong: compare it with its source, or end it with a newline."
    W180 = "All {n:,} names are searched for each mention, because faiss is not installed or the vectors have no index. To make the search many times faster: pip install faiss-cpu, then bioel kb encode KB MODEL"
    W181 = "The vectors in {path} are outdated: each process encodes all names again, in memory. To store them, run bioel kb encode {path} MODEL"
    W212 = "The knowledge base in {path} is being changed by {holder}: waiting until it finishes."
    W260 = "{where}: bioel link failed on this document ({error}), so it is skipped."
    W270 = "Another package has registered span._.{name}, which is kept. Read links with spacy_bioel.doc.get_links(doc), or load bioel_linker first."
    W271 = "The pipe {linker!r} comes before {finder!r}, which finds mentions, so it has no mentions to link. Add it last: nlp.add_pipe('bioel_linker', last=True)."
    W272 = "label_types for {label!r} contains semantic types that the knowledge base in {path} lacks: {unknown}. It has, for example, {known}. Correct them, otherwise they match no concept."
    W273 = "While training, the encoder searches {n:,} of the {of:,} names of {path}. Afterwards, encode them all: linker.encode_kb(linker.kb), or bioel kb encode KB MODEL for the saved pipeline."
    W300 = "{n:,} of {of:,} gold mentions overlap longer mentions. Tags cannot represent both: only the longest are learnt. To find them all, use bioel_mentions with spacy-bioel.SpanEnumerator.v1."
    W301 = "{path}: .txt files without an .ann file of the same name are left out ({n:,}: {first}). Create empty .ann files for texts without mentions."
    W302 = "No document of {source} has a mention, so there was nothing to link. To find mentions, leave out --mentions given."
    W304 = "{path}: files left out: {n:,}. Only files that end in .txt or .txt.gz are read, without subfolders."
    W320 = "{linker!r} with mentions = {mentions!r} links the mentions in {wanted}, but the pipes before it ({finders}) write to {written}. Set `mentions` or `spans_key` of {linker!r} to where the mentions are."
    W321 = "The `{setting}` setting of bioel_linker contains the labels {unknown}, which the pipes before it ({finders}) do not assign: they assign {known}. Correct the labels, otherwise they have no effect."
    W322 = "The `include` setting of bioel_mentions contains the labels {unknown}, which its model has not learned: it finds {known}. Correct the labels, unless only the listed words should have them."
    W323 = 'No pipe before {linker!r} finds mentions, and the document has none. Add an NER or a ruler before it, set mentions = "dictionary", or use the starter: spacy_bioel.load().'
    W324 = "The {part} of {text!r} are not stored in this document, so they are unknown, not absent: doc.to_json() without underscore=['bioel_records'] drops them, and a DocBin without user data keeps only the facts and context in span groups as the linker wrote them. Link the document again, or store its user data."
    W325 = "doc._.abbreviations does not have scispaCy's form (spans with ._.long_form, or mappings with short_text and long_text), so it is ignored. To silence this warning, rename the extension of the other package."
    W326 = "The tokens of this document were changed after it was linked, so spaCy shows the text of other tokens for the mention at {place}: {text!r}. Link the document again, or use spacy_bioel.doc.get_links(doc)."
    W335 = "{path}: the gold mentions are those in {place} ({n:,}); other places with mentions, if any, contain the same. To choose the place, use --spans-key KEY or --ents."
    W336 = "{path}: records left out because of their answer: {left:,} of {n:,} ({answers})."
    W337 = "{path}: notes on mentions that are not ids, and are ignored: {n:,}, the first in {first}. Only a note that contains nothing but ids, such as MESH:D003920, is read; ids without a prefix need --prefix."
    W340 = "Only {known:,} of {n:,} gold ids in {path} are in the knowledge base, whose ids look like {example} (missing: {first}). {hint}"
    W345 = "{name!r} learns nothing from these examples: they have annotations in {found}, but no gold mentions in doc.spans[{key!r}]. Copy them: doc.spans[{key!r}] = list(doc.ents), with ids in kb_id_; or read the corpus with spacy-bioel.Corpus.v1."
    W346 = "{name!r} does not learn the label {label!r} of gold mentions: its model has {known}. To learn it, train again from nlp.initialize, with examples that contain it."
    W350 = "There is no {path}, so no interrupted run can be continued. All documents are linked."
    W351 = "First use: building the knowledge base {kb} in {folder}. This happens once for each version of it."
    W352 = "First use: encoding the {n:,} names of {kb}. This happens only once."
    W370 = "{path}: keys of mentions that were not read, with how often they occur: {keys}. Labels are read from 'label', ids from 'ids'. Rename a key if it contains one of these; ids that differ must be under one key."
    W382 = "The pipeline finds labels that no gold mention has ({labels}; gold: {known}), and these mentions count as errors. If documents are not annotated with these labels, add annotates = [LABEL, ...] to the reader; to train a pipeline without them, use the config fine_tune.cfg, or its section [initialize.before_init]."
    W390 = "{source}: sentences seem to continue on the next line, but each line was read as a document of its own. To read the whole file as one note, add --format whole."
    W477 = "{path}: unreadable cross-references and definitions are left out: {n:,}, the first in line {line}: {row!r}. Ids and names are complete."
    W478 = "{path}: synonyms were split at {used!r}; rows with a semicolon there: {semicolons:,}, with a bar: {bars:,}. If this is wrong, build again with --synonym-separator TEXT."
    W479 = "{path}: {what} that are not read: {n:,} ({names})."
