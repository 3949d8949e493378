"use strict";
// Texts with mentions, and the panel about a selected mention. Text from documents and knowledge
// bases is inserted as text, never as HTML.
const byId = id => document.getElementById(id);

function element(name, content = "", attributes = {}) {
  const node = document.createElement(name);
  node.append(...(Array.isArray(content) ? content : [content]));
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

const isolated = text => element("bdi", text);  // names may be written from right to left

// All other fields of a link are facts, such as "hgvs".
const FIELDS = new Set(["start", "end", "text", "label", "id", "ids", "candidates", "context", "why"]);
const HUES = {{ hues | tojson }};
const EDGES = ["solid", "double", "dotted", "dashed"];

// The same numbers as `style_of` in export/pages.py.
function styleOf(label) {
  if (label in HUES) return [HUES[label], EDGES[0]];
  const hash = Array.from(label).reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 1440, 7);
  return [hash % 12 * 30, EDGES[Math.floor(hash / 12) % 4]];
}

const ADDRESSES = {{ addresses | tojson }}, UNPREFIXED = new RegExp({{ unprefixed | tojson }});

// The address of a concept's page in its vocabulary, as `address_of` in export/pages.py.
function addressOf(id) {
  const found = id.match(UNPREFIXED), colon = id.indexOf(":");
  const [prefix, local] = found
    ? Object.entries(found.groups).find(([, value]) => value)
    : [id.slice(0, Math.max(colon, 0)), id.slice(colon + 1).trim()];
  const address = ADDRESSES[prefix.toLowerCase()];
  return address && local ? address.replace("{}", encodeURIComponent(local)) : "";
}

function statusOf(link) {
  if (!link.ids.length) return "NIL";
  return link.context ? link.context.assertion : "linked";
}

const isPale = ({context}) => context && !["present", "absent"].includes(context.assertion);

// What the marks on these mentions mean.
function describeMarks(links) {
  return [
    links.some(link => !link.ids.length) && "No background: no concept fits (NIL).",
    links.some(link => link.context && link.context.negated) && "Struck through: negated.",
    links.some(isPale) && "Pale: possible, conditional, historical, or about another person.",
  ].filter(Boolean).join(" ");
}

const scoreOf = link => link.candidates.length ? link.candidates[0].score : 0;

// Offsets count characters; JavaScript strings count UTF-16 code units.
function drawText(container, text, links) {
  const characters = Array.from(text), parts = [];
  const order = [...links].sort((a, b) => a.start - b.start || b.end - a.end);
  const bounds = [...new Set([0, characters.length, ...order.flatMap(l => [l.start, l.end])])]
    .sort((a, b) => a - b);
  let open = [], next = 0;
  for (let i = 0; i + 1 < bounds.length; i++) {
    const [start, end] = [bounds[i], bounds[i + 1]];
    open = open.filter(link => link.end > start);
    while (next < order.length && order[next].start <= start) open.push(order[next++]);
    const words = characters.slice(start, end).join("");
    parts.push(open.length ? drawPiece(words, open, start, end) : words);
  }
  container.dir = "ltr";  // browsers would look for the direction again after each insertion
  container.replaceChildren(...parts);
  container.dir = "auto";
}

// A piece of one or more mentions. The first piece of each mention can be reached with Tab.
function drawPiece(words, links, start, end) {
  const inner = links[links.length - 1], [hue, edge] = styleOf(inner.label);
  const classes = [];
  if (!inner.ids.length) classes.push("nil");
  if (links.length > 1) classes.push("overlapping");
  if (inner.context && inner.context.negated) classes.push("negated");
  else if (isPale(inner)) classes.push("other");
  const mark = element("mark", words, {
    role: "button", tabindex: links.some(l => l.start === start) ? 0 : -1,
    class: classes.join(" "), style: `--hue: ${hue}; --edge-style: ${edge}`,
  });
  if (links.length > 1) mark.style.setProperty("--hue-2", styleOf(links[0].label)[0]);
  mark.links = links;
  for (const link of links) {
    if (link.end !== end) continue;
    const said = link.context && link.context.assertion !== "present" ? link.context.assertion : "";
    mark.append(element("sup", [link.label, link.ids.join(" | ") || "NIL", said].filter(Boolean).join(" ")));
  }
  return mark;
}

// Call `select` with the mentions that a person clicks, or chooses with Enter or Space, and with none
// when the panel is closed. The keyboard moves to the panel; Escape leads back to the mention.
function listen(container, select) {
  const choose = event => {
    const mark = event.target.closest("mark");
    if (!mark) return;
    event.preventDefault();
    const unmark = () => {
      for (const node of document.querySelectorAll("#panel .close")) node.remove();
      for (const node of document.querySelectorAll("mark.selected")) node.classList.remove("selected");
    };
    unmark();
    mark.classList.add("selected");
    select(mark.links, mark);
    const close = element("button", "Close", {type: "button", class: "quiet close"});
    close.onclick = () => {
      document.onkeydown = null;
      unmark();
      select([]);
      mark.focus();
    };
    document.onkeydown = ({key}) => { if (key === "Escape") close.click(); };
    byId("panel").prepend(close);
    mark.scrollIntoView({block: "nearest"});  // on a narrow screen, the panel may cover it
  };
  container.addEventListener("click", choose);
  container.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " " || !event.target.closest("mark")) return;
    choose(event);
    byId("panel").tabIndex = 0;
    byId("panel").focus({preventScroll: true});
  });
}

function drawScore(score) {
  const bar = element("span", element("i"), {class: "score", "aria-hidden": "true"});
  bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, score))}%`;
  return bar;
}

function definitions(pairs) {
  return element("dl", pairs.filter(([, value]) => value && value.length).flatMap(([term, value]) =>
    [element("dt", term), element("dd", Array.isArray(value) ? value : [isolated(String(value))])]));
}

// What is known of a link. `showId` formats an id; `nameOf` returns a preferred name, or "".
function drawLink(link, text, showId, nameOf) {
  const characters = Array.from(text), context = link.context;
  const cues = context ? context.cues.map(
    ({start, end, says}) => `${says} (“${characters.slice(start, end).join("")}”)`) : [];
  const said = context ? [context.assertion, context.relative, context.layout, ...cues] : [];
  const candidates = link.candidates.map(c => {
    const name = c.preferred || nameOf(c.id) || c.name;
    return element("li", [showId(c.id), " ", isolated(name), c.kind ? ` (${c.kind})` : "",
      name === c.name ? "" : element("small", [" matched: ", isolated(c.name)]),
      element("small", ` ${c.score.toFixed(2)}, ${c.evidence}`), drawScore(c.score)]);
  });
  return [
    element("h2", [isolated(characters.slice(link.start, link.end).join("")), ` ${link.label}`]),
    definitions([
      ["Linked to", link.ids.length
        ? link.ids.flatMap((id, i) => [i ? " | " : "", showId(id)]) : "NIL"],
      ["Why", link.why],
      ["In the text", said.filter(Boolean).join("; ")],
      ...Object.entries(link).filter(([name]) => !FIELDS.has(name))
        .map(([name, value]) => [name, String(value)]),
    ]),
    element("h3", "Candidates"),
    candidates.length ? element("ol", candidates, {class: "candidates"})
      : element("p", "None.", {class: "soft"}),
  ];
}

function drawConcept(concept, showId) {
  const list = values => (values || []).flatMap((value, i) => [i ? "; " : "", isolated(value)]);
  return [
    element("h3", [concept.id, " ", isolated(concept.name)]),
    element("p", concept.definition || "No definition.", concept.definition ? {} : {class: "soft"}),
    definitions([
      ["Names", list(concept.names)], ["Types", list(concept.types)],
      ["Parents", (concept.parents || []).flatMap((id, i) => [i ? ", " : "", showId(id)])],
      ["Cross-references", list(concept.xrefs)],
    ]),
  ];
}
