// The page of linked texts: filters, search and paging over the documents in the page.
const MAX_DOCUMENTS = 20, MAX_CHARACTERS = 200000;  // on one page
const documents = [], concepts = {};
const filters = {hidden: new Set(), query: "", status: "", lowest: 0};
const hint = [...byId("panel").childNodes];
let shown = [], starts = [0], page = 0, selected = null;

function readDocuments() {
  for (const node of document.querySelectorAll("script.document")) {
    const read = JSON.parse(node.textContent);
    for (const concept of read.concepts) concepts[concept.id] = concept;
    documents.push(read);
    node.remove();
  }
}

const byNumber = (a, b) => a.localeCompare(b, "en", {numeric: true});  // 2 before 10
const nameOf = id => (concepts[id] || {name: ""}).name;

function showId(id) {
  const address = addressOf(id);
  return address ? element("a", id, {href: address}) : document.createTextNode(id);
}

// Whether a mention passes the filters; `found`: the query is in the id or title of its document.
function passes(link, text, found) {
  if (filters.hidden.has(link.label)) return false;
  if (filters.status && statusOf(link) !== filters.status) return false;
  if (filters.lowest && scoreOf(link) < filters.lowest) return false;
  if (!filters.query || found) return true;
  return [link.text, ...link.ids, ...link.ids.map(nameOf)]
    .some(words => words.toLowerCase().includes(filters.query));
}

function applyFilters() {
  const isFiltered = filters.hidden.size || filters.query || filters.status || filters.lowest;
  shown = [];
  for (const read of documents) {
    const found = filters.query && read.id.toLowerCase().includes(filters.query);
    const links = read.links.filter(link => passes(link, read.text, found));
    if (links.length || !isFiltered) shown.push([read, links]);
  }
  starts = [0];
  let size = 0;
  shown.forEach(([read], i) => {
    if (i > starts[starts.length - 1]
      && (i - starts[starts.length - 1] === MAX_DOCUMENTS || size + read.text.length > MAX_CHARACTERS)) {
      starts.push(i);
      size = 0;
    }
    size += read.text.length;
  });
  if (!shown.some(([, links]) => links.includes(selected))) byId("panel").replaceChildren(...hint);
  drawPage(0);
}

function drawPage(number) {
  page = number;
  const first = starts[page], next = starts[page + 1] || shown.length;
  const sections = shown.slice(first, next).map(([read, links]) => {
    const text = element("div", "", {class: "text", dir: "auto"});
    drawText(text, read.text, links);
    listen(text, chosen => select(chosen, read));
    return element("section", read.id ? [element("h2", isolated(read.id)), text] : text);
  });
  byId("documents").replaceChildren(...sections);
  for (const mark of document.querySelectorAll("mark")) {
    mark.classList.toggle("selected", mark.links.includes(selected));
  }
  const n = shown.reduce((sum, [, links]) => sum + links.length, 0);
  byId("summary").textContent = `${n.toLocaleString("en")} ${n === 1 ? "mention" : "mentions"} in `
    + `${shown.length.toLocaleString("en")} of ${documents.length.toLocaleString("en")} documents`;
  for (const pager of document.querySelectorAll(".pager")) {
    pager.hidden = starts.length === 1;
    const [back, on] = [["Previous", -1], ["Next", 1]].map(([words, step]) => {
      const button = element("button", words, {type: "button", class: "quiet"});
      button.disabled = !(page + step in starts);
      button.onclick = () => { drawPage(page + step); byId("documents").scrollIntoView(); };
      return button;
    });
    pager.replaceChildren(back, `documents ${first + 1} to ${next}`, on);
  }
}

function select(links, read) {
  selected = links[0] || null;
  byId("panel").replaceChildren(...selected ? links.flatMap(link => [
    ...drawLink(link, read.text, showId, nameOf),
    ...link.ids.filter(id => id in concepts).flatMap(id => drawConcept(concepts[id], showId)),
  ]) : hint);
}

function drawHead() {
  byId("marks").textContent = describeMarks(documents.flatMap(read => read.links));
  const labels = new Set(), statuses = new Set(), kbs = new Set(documents.flatMap(read => read.kbs));
  for (const {links} of documents) for (const link of links) {
    labels.add(link.label);
    statuses.add(statusOf(link));
  }
  byId("kbs").hidden = !kbs.size;
  byId("kbs").lastChild.replaceChildren(...[...kbs].sort().map(kb => element("li", kb)));
  byId("labels").replaceChildren(...[...labels].sort(byNumber).map(label => {
    const [hue, edge] = styleOf(label), button = element("button",
      [element("span", "", {class: "swatch", style: `--hue: ${hue}; --edge-style: ${edge}`}),
        label || "(no label)"], {type: "button", class: "quiet", "aria-pressed": "true"});
    button.onclick = () => {
      if (!filters.hidden.delete(label)) filters.hidden.add(label);
      button.setAttribute("aria-pressed", String(!filters.hidden.has(label)));
      applyFilters();
    };
    return button;
  }));
  byId("status").append(...[...statuses].sort().map(name => element("option", name)));
}

let waiting = 0;
byId("query").oninput = event => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    filters.query = event.target.value.trim().toLowerCase();
    applyFilters();
  }, 150);
};
byId("status").onchange = event => { filters.status = event.target.value.replace("any", ""); applyFilters(); };
byId("lowest").oninput = event => {
  filters.lowest = Number(event.target.value);
  byId("lowest-shown").textContent = filters.lowest;
  applyFilters();
};
byId("filters").onsubmit = event => event.preventDefault();
readDocuments();
drawHead();
applyFilters();
