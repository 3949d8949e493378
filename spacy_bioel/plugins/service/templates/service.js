// The page of the service: send a text, show the answer, compare thresholds, download the links.
const COLUMNS = {{ columns | tojson }};
const MAX_ROWS = 1000;  // of the table; downloads have all
const EXAMPLES = {
  Abstract: "Naloxone reverses the antihypertensive effect of clonidine. In unanesthetized, spontaneously hypertensive rats the decrease in blood pressure and heart rate produced by intravenous clonidine was inhibited or reversed by naloxone.",
  Note: "History of Present Illness:\n62 y/o woman with T2DM and HTN, presents with chest pain. Denies fever or SOB.\n\nFamily History:\nMother: breast cancer\n\nMedications:\n- metformin 500 mg BID\n- lisinopril 10 mg daily\n\nAssessment:\n1. Possible unstable angina\n2. No evidence of pneumonia",
  Table: "Gene\tVariant\tDisease\tDrug\nBRAF\tp.V600E\tmelanoma\tvemurafenib\nEGFR\tp.L858R\tlung adenocarcinoma\tgefitinib\nKRAS\tp.G12C\tcolorectal cancer\tsotorasib",
};
let service = {model: {pipes: [], nil_threshold: 0}, limits: {characters: Infinity}};
let result = null, latest = 0, shownConcept = 0;

function showStatus(message, isError = false) {
  byId("status").textContent = message;
  byId("status").className = isError ? "bad" : "soft";
}

async function fetchJson(path, options) {
  let response;
  try { response = await fetch(path, options); }
  catch { throw new Error("The service does not answer."); }
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.code}: ${answer.message}`);
  return answer;
}

// Text, from a keyboard, a file or the examples

async function linkText() {
  const number = ++latest;
  showStatus("Linking …");
  try {
    const answer = await fetchJson("link", {method: "POST", headers: {"Content-Type": "application/json"},
      body: JSON.stringify({texts: [byId("text").value], explain: true})});
    if (number !== latest) return;  // another text was sent in the meantime
    const [linked] = answer.documents;
    if (linked.error) throw new Error(`${linked.error.code}: ${linked.error.message}`);
    result = linked;
    showResult();
  } catch (error) { if (number === latest) showStatus(error.message, true); }
}

async function readFile(file) {
  const most = service.limits.characters, quoted = `“${file.name}”`;
  const tooLong = `${quoted} is too long: the service reads texts of up to ${most.toLocaleString("en")} characters. Link it with: bioel link MODEL FILE`;
  if (file.size > 4 * most) throw new Error(tooLong);  // a character has up to 4 bytes
  let text = "\0";
  try { text = new TextDecoder("utf-8", {fatal: true}).decode(await file.arrayBuffer()); }
  catch { /* reported below */ }
  if (text.includes("\0")) throw new Error(`${quoted} is not plain text in UTF-8. Save it as a .txt file first.`);
  if (!text.trim()) throw new Error(`${quoted} is empty.`);
  if (Array.from(text).length > most) throw new Error(tooLong);
  return text;
}

async function linkFile(files) {
  try {
    if (files.length !== 1) throw new Error("Choose one file.");
    byId("text").value = await readFile(files[0]);
    linkText();
  } catch (error) { showStatus(error.message, true); }
}

// The answer

function showResult() {
  const {text, links} = result, counts = new Map(), nil = links.filter(link => !link.ids.length).length;
  for (const {label} of links) counts.set(label, (counts.get(label) || 0) + 1);
  byId("legend").replaceChildren(...[...counts].sort(([, a], [, b]) => b - a).map(([label, n]) => {
    const [hue, edge] = styleOf(label);
    const swatch = element("span", "", {class: "swatch", style: `--hue: ${hue}; --edge-style: ${edge}`});
    return element("span", [swatch, `${label || "(no label)"} ${n}`]);
  }));
  drawText(byId("text-linked"), text, links);
  byId("marks").textContent = describeMarks(links);
  byId("result").hidden = false;
  showLinks([]);
  showStatus(`${links.length.toLocaleString("en")} ${links.length === 1 ? "mention" : "mentions"}`
    + (nil ? `, ${nil.toLocaleString("en")} of them without a concept (NIL)` : ""));
  drawTable();
  compare();
}

function showId(id) {
  const button = element("button", id, {type: "button", class: "plain"});
  button.onclick = () => showConcepts([id]);
  return button;
}

function showLinks(links) {
  const hint = result.links.length
    ? "Select a mention to see its concept, its candidates and why it was chosen."
    : "Nothing in this text was found as a mention.";
  byId("mention").replaceChildren(...links.length
    ? links.flatMap(link => drawLink(link, result.text, showId, () => ""))
    : [element("p", hint, {class: "soft hint"})]);
  showConcepts(links.flatMap(link => link.ids), false);
}

async function showConcepts(ids, move = true) {
  const number = ++shownConcept;
  try {
    const concepts = await Promise.all([...new Set(ids)].map(
      id => fetchJson("concepts/" + encodeURIComponent(id))));
    if (number !== shownConcept) return;  // something else was selected in the meantime
    byId("concept").replaceChildren(...concepts.flatMap(concept => {
      const address = addressOf(concept.id);
      return [...drawConcept(concept, showId), ...(address
        ? [element("p", element("a", "Its page in the vocabulary", {href: address, rel: "noreferrer"}))] : [])];
    }));
    if (move) byId("concept").scrollIntoView({block: "nearest"});
  } catch (error) { showStatus(error.message, true); }
}

const linkedCandidates = link =>
  link.ids.map(id => link.candidates.find(c => c.id === id)).filter(Boolean);

function drawTable() {
  const details = byId("table");
  while (details.children.length > 1) details.lastChild.remove();
  if (!details.open) return;
  const cells = link => {
    const linked = linkedCandidates(link), best = linked[0] || link.candidates[0];
    const names = linked.map(c => c.preferred || c.name).join(" | ");
    return [
      element("th", isolated(link.text), {scope: "row"}), element("td", link.label),
      element("td", [...link.ids.map(showId), " ", isolated(names)]), element("td", statusOf(link)),
      element("td", best ? best.score.toFixed(2) : "", {class: "number"}),
    ];
  };
  const head = ["Mention", "Label", "Concept", "Status", "Score"].map(name => element("th", name, {scope: "col"}));
  const body = result.links.slice(0, MAX_ROWS).map(link => element("tr", cells(link)));
  const left = result.links.length - body.length;
  details.append(
    element("div", element("table", [element("thead", element("tr", head)), element("tbody", body)]),
      {class: "wide", tabindex: 0, role: "group", "aria-label": "Table of mentions"}),
    element("p", left > 0 ? `And ${left.toLocaleString("en")} more, which are in the downloads.` : "", {class: "soft"}));
}

// Two thresholds

// The link that another threshold gives, by the scores of the candidates.
function decideAgain(link, threshold) {
  const [best, second] = link.candidates, used = service.model.nil_threshold;
  if (!best) return link;
  const linked = linkedCandidates(link);
  const isTied = second && best.score === second.score && best.score <= 0.5;  // as `is_tied`
  const mayBe = link.ids.length ? linked : best.score < used && !isTied ? [best] : [];
  const isLinked = mayBe.length && Math.min(...mayBe.map(c => c.score)) >= threshold;
  const ids = isLinked ? mayBe.map(c => c.id) : [];
  return {...link, ids, why: `${isLinked ? "Linked" : "NIL"} with the threshold ${threshold}, as this page computes it.`};
}

function compare() {
  const isOpen = byId("compare").open && result;
  byId("used").textContent = service.model.nil_threshold;
  const columns = [...document.querySelectorAll("#compare .columns > div")].map(column => {
    const [input, output, counts, text] = column.parts, threshold = Number(input.value);
    output.textContent = threshold.toFixed(2);
    const links = isOpen ? result.links.map(link => decideAgain(link, threshold)) : [];
    const n = links.filter(link => link.ids.length).length;
    counts.textContent = `${n} linked, ${links.length - n} NIL`;
    return [text, links];
  });
  if (!columns.length) return;  // the threshold of the service is not known yet
  const [first, second] = columns.map(([, links]) => links), different = new Set();
  first.forEach((link, i) => {
    if (link.ids.join() !== second[i].ids.join()) different.add(link).add(second[i]);
  });
  for (const [text, links] of columns) {
    drawText(text, isOpen ? result.text : "", links);
    for (const mark of text.querySelectorAll("mark")) {
      if (mark.links.some(link => different.has(link))) mark.classList.add("different");
    }
  }
  const n = different.size / 2;
  byId("differences").textContent = !n ? "No mention differs."
    : `${n} ${n === 1 ? "mention differs" : "mentions differ"}; see the dashed outlines.`;
}

function drawColumns() {
  const used = service.model.nil_threshold, thresholds = [used, Math.round(50 * (1 + used)) / 100];
  document.querySelector("#compare .columns").replaceChildren(...thresholds.map((threshold, i) => {
    const input = element("input", "", {type: "range", id: `threshold-${i}`, min: 0, max: 1, step: 0.01});
    input.value = threshold;
    const output = element("output", "", {for: input.id}), counts = element("p", "", {class: "soft"});
    const text = element("div", "", {class: "text", dir: "auto"});
    const column = element("div", [
      element("div", [element("label", "At least", {for: input.id}), input, output], {class: "row"}),
      counts, text]);
    column.parts = [input, output, counts, text];
    input.oninput = compare;
    listen(text, showLinks);
    return column;
  }));
}

// Downloads, with the columns of `bioel link -o links.csv`

function csvCell(value) {
  let cell = String(value ?? "");
  // Spreadsheets would run it as a formula.
  if (typeof value === "string" && /^'*[=+@\t\r\n-]/.test(cell) && !/^[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(cell)) cell = `'${cell}`;
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

function toCsv({id, links}) {
  const others = links.flatMap(Object.keys).filter(name => !FIELDS.has(name) && !COLUMNS.includes(name));
  const columns = [...COLUMNS];
  columns.splice(columns.indexOf("context"), 0, ...new Set(others));
  const rows = links.map(link => {
    const linked = linkedCandidates(link), context = link.context;
    const join = values => values.some(Boolean) ? values.join("|") : null;
    const cells = {
      ...link, document: id, id: link.ids.join("|"),
      preferred_name: join(linked.map(c => c.preferred || "")),
      name: join(linked.map(c => c.name)), evidence: join(linked.map(c => c.evidence)),
      score: linked.length ? Math.min(...linked.map(c => c.score)) : null,
      context: context && join([...new Set(context.cues.map(cue => cue.says))].sort()),
      assertion: context && context.assertion, relative: context && context.relative,
    };
    return columns.map(name => csvCell(cells[name])).join(",");
  });
  return [columns.join(","), ...rows, ""].join("\n");
}

function download(name, type, content) {
  const link = element("a", "", {download: name, href: URL.createObjectURL(new Blob([content], {type}))});
  link.click();
  URL.revokeObjectURL(link.href);
}

// Controls

byId("link").onsubmit = event => { event.preventDefault(); linkText(); };
byId("text").onkeydown = event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("link").requestSubmit();
};
byId("examples").append(...Object.entries(EXAMPLES).map(([name, text]) => {
  const button = element("button", name, {type: "button", class: "quiet"});
  button.onclick = () => { byId("text").value = text; linkText(); };
  return button;
}));
byId("file").onchange = event => {
  if (event.target.files.length) linkFile(event.target.files);
  event.target.value = "";  // the same file can be chosen again
};
document.ondragover = event => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dropping");
};
document.ondragleave = event => {
  if (!event.relatedTarget) document.body.classList.remove("dropping");
};
document.ondrop = event => {
  document.body.classList.remove("dropping");
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  linkFile(event.dataTransfer.files);
};
listen(byId("text-linked"), showLinks);
byId("table").ontoggle = () => { if (result) drawTable(); };
byId("compare").ontoggle = compare;
byId("json").onclick = () => download("links.json", "application/json", JSON.stringify(result, null, 1));
byId("csv").onclick = () => download("links.csv", "text/csv", toCsv(result));

byId("search").onsubmit = async event => {
  event.preventDefault();
  if (!byId("words").value.trim()) return;
  const number = ++shownConcept;
  try {
    const {concepts} = await fetchJson("search?" + new URLSearchParams({q: byId("words").value}));
    if (number !== shownConcept) return;
    const items = concepts.map(c => element("li", [showId(c.id), " ", isolated(c.name),
      c.matched === c.name ? "" : element("small", [" matched: ", isolated(c.matched)])]));
    byId("mention").replaceChildren(items.length ? element("ol", items, {class: "candidates"})
      : element("p", "No name is similar to these words."));
    byId("concept").replaceChildren();
    showStatus("");
  } catch (error) { showStatus(error.message, true); }
};

async function showInfo() {
  try {
    service = await fetchJson("info");
    const {model, kbs, limits} = service;
    byId("about").hidden = false;
    byId("about").lastChild.replaceChildren(...kbs.map(kb => element("li",
      `${[kb.source || kb.name, kb.release].filter(Boolean).join(", ")}: ${kb.concepts.toLocaleString("en")} concepts`)));
    const isClinical = model.pipes.includes("bioel_context");
    byId("info").textContent = `${model.name} ${model.version}. ` + (isClinical
      ? "Negated, historical and similar mentions are marked."
      : "For clinical notes, start the service with --preset clinical.");
    byId("limit").textContent = `.txt in UTF-8, up to ${limits.characters.toLocaleString("en")} characters`;
    drawColumns();
    compare();
  } catch (error) {
    byId("info").textContent = error.message;
    setTimeout(showInfo, 2000);
  }
}
showInfo();
