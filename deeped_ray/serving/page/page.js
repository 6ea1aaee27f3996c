// The demo page: sends a text to the linker and shows what each name means, and why.
// Data reaches the document only as text nodes and attributes, never as markup.

import { askWhetherAccepted, correctionOf } from "./corrections.js";
import { leaveEntity, showEntity } from "./entity.js";
import {
  TOKEN,
  ask,
  bar,
  decimal,
  element,
  entityAddress,
  percent,
  signed,
  svgElement,
  wikidataLink,
  wikipediaLink,
} from "./tools.js";

const EXAMPLE =
  "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice.";
const NUM_CANDIDATES = 7;
const NUM_NEIGHBORS = 8;
const MAX_GRAPH_MENTIONS = 25;
const MAX_SHARED_CHARACTERS = 20_000; // longer addresses get lost on the way

const byId = (id) => document.getElementById(id);
const [request, source, tokenRow, token, status] = ["request", "source", "token-row", "token", "status"].map(byId);
const [result, text, panel, coherence, graph] = ["result", "text", "panel", "coherence", "graph"].map(byId);

const [threshold, resultTools] = ["threshold", "result-tools"].map(byId);

let answer = null; // the last one: { text, mentions, version }
let mentions = []; // its mentions, as the threshold leaves them
let selected = null; // index into mentions
let linking = new AbortController();
let browsing = new AbortController();

function say(message, { problem = false } = {}) {
  status.textContent = message;
  status.classList.toggle("problem", problem);
}

function setBusy(busy) {
  for (const part of [result, coherence]) part.setAttribute("aria-busy", busy);
}

async function link() {
  linking.abort();
  const ours = (linking = new AbortController());
  const asked = source.value;
  if (!asked.trim()) {
    setBusy(false);
    say("Paste a text first.");
    source.focus();
    return;
  }
  setBusy(true);
  say("Linking …");
  try {
    const body = { text: asked, spans: null, top: NUM_CANDIDATES, explain: true, threshold: 0, mentions: mode() };
    const { mentions, version } = await ask("link", { method: "POST", body: JSON.stringify(body), signal: ours.signal });
    answer = { text: asked, mentions, version };
    apply();
    close();
    showVersion(version);
    resultTools.hidden = false;
  } catch (error) {
    if (ours.signal.aborted) return; // a newer request has taken over
    if (error.status === 401) {
      tokenRow.hidden = false;
      token.focus();
    }
    say(error.message, { problem: true });
  }
  setBusy(false);
}

/** "names", "all", or null as the server is set up. */
const mode = () => request.elements.mode.value || null;

/** Shows the last answer with the present threshold: nothing is asked again. */
function apply() {
  const least = Number(threshold.value) / 100;
  byId("threshold-value").textContent = percent(least);
  if (!answer) return;
  mentions = answer.mentions.map((mention) => {
    if (!mention.entity || mention.entity.probability >= least) return mention;
    const reason = `${mention.entity.title} has a probability of ${percent(mention.entity.probability)}, below the threshold`;
    return { ...mention, entity: null, reason };
  });
  showText(answer.text);
  const numLinked = mentions.filter((mention) => mention.entity).length;
  say(mentions.length ? `${mentions.length} ${mentions.length === 1 ? "mention" : "mentions"}, ${numLinked} linked` : nothingFound());
}

const nothingFound = () =>
  mode() === "all" ? "Nothing found to link." : "No names found. “All that Wikipedia would link” finds more.";

function showVersion({ deeped_ray, model, linker, knowledge_base }) {
  const short = (checksum) => checksum?.slice(0, 12) ?? "none";
  byId("version").textContent =
    `deeped-ray ${deeped_ray} · ${model} model · linker ${short(linker)} · knowledge base ${short(knowledge_base)}`;
}

// ---- the text

function showText(linked) {
  const points = Array.from(linked); // offsets count code points, strings UTF-16 units
  text.replaceChildren();
  let at = 0;
  mentions.forEach(({ start, end, entity, reason }, index) => {
    const attributes = {
      class: entity ? "mention" : "mention unlinked",
      title: entity ? entity.title : reason,
      role: "button",
      tabindex: index ? -1 : 0,
      "data-mention": index,
      "aria-controls": "panel",
    };
    const mark = element("mark", attributes, points.slice(start, end).join(""));
    if (entity) mark.style.setProperty("--certainty", certaintyOf(entity.probability));
    text.append(points.slice(at, start).join(""), mark);
    at = end;
  });
  text.append(points.slice(at).join(""));
}

/** 0 for a guess, 1 for a certain answer: half of the scale is below 90%, where answers begin to be trusted. */
const certaintyOf = (probability) => (probability < 0.9 ? probability / 1.8 : 0.5 + 5 * (probability - 0.9));

/** Marks the attended words wherever they stand outside the mention itself, cut as the server's tokenizer cuts. */
function highlight(mention, attended) {
  for (const mark of text.querySelectorAll(".attended")) mark.replaceWith(...mark.childNodes);
  text.normalize();
  if (!attended.length) return;
  const heaviest = Math.max(...attended.map(({ weight }) => weight));
  const weights = new Map(attended.map(({ word, weight }) => [word.toLowerCase(), weight / heaviest]));
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) if (!mention.contains(walker.currentNode)) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const marked = new DocumentFragment();
    let at = 0;
    for (const { 0: word, index } of node.data.matchAll(/[\p{L}\p{N}\p{M}_]+/gu)) {
      const weight = weights.get(word.toLowerCase());
      if (weight === undefined) continue;
      marked.append(node.data.slice(at, index), weighted(element("mark", { class: "attended" }, word), weight));
      at = index + word.length;
    }
    if (at === 0) continue;
    marked.append(node.data.slice(at));
    node.replaceWith(marked);
  }
}

function weighted(marked, weight) {
  marked.style.setProperty("--weight", weight);
  return marked;
}

// ---- selecting

function select(index) {
  selected = index;
  for (const mention of text.querySelectorAll(".mention")) {
    mention.setAttribute("aria-expanded", Number(mention.dataset.mention) === index);
  }
  const mention = index === null ? null : mentions[index];
  highlight(index === null ? text : inText(index), mention ? mention.attended : []);
  showPanel(mention);
  drawGraph();
}

const close = () => select(null);
const inText = (index) => text.querySelector(`[data-mention="${index}"]`);

document.addEventListener("click", ({ target }) => {
  const chosen = target.closest("[data-mention]");
  if (!chosen) return;
  const fromPanel = panel.contains(chosen);
  select(Number(chosen.dataset.mention));
  if (fromPanel) inText(selected).focus({ preventScroll: true });
  else if (text.contains(chosen)) bringPanelNear(chosen);
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && selected !== null) {
    const mention = panel.contains(event.target) ? inText(selected) : event.target;
    close();
    mention.focus({ preventScroll: true });
    return;
  }
  const focused = event.target.closest("[role=button][data-mention]");
  if (!focused || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    select(Number(focused.dataset.mention));
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const all = [...focused.closest("#text, #graph").querySelectorAll("[data-mention]")];
    const next = all[all.indexOf(focused) + (event.key === "ArrowLeft" ? -1 : 1)];
    if (!next) return;
    event.preventDefault();
    next.focus();
    if (selected !== null) select(Number(next.dataset.mention));
  }
});

// The text and the graph are one Tab stop each: the mention that had the focus last.
document.addEventListener("focusin", ({ target }) => {
  if (!target.matches("[role=button][data-mention]")) return;
  for (const other of target.closest("#text, #graph").querySelectorAll("[data-mention]")) other.tabIndex = -1;
  target.tabIndex = 0;
});

/** Where the panel is below the text and out of sight, scrolls as far as the mention stays in sight. */
function bringPanelNear(mention) {
  const hidden = panel.getBoundingClientRect().top - 0.6 * window.innerHeight;
  const room = mention.getBoundingClientRect().top - 16;
  if (hidden > 0 && room > 0) window.scrollBy({ top: Math.min(hidden, room) });
}

// ---- the panel

function showPanel(mention) {
  browsing.abort();
  if (mention === null) {
    panel.replaceChildren(
      element("h2", {}, "Why this entity?"),
      element("p", { class: "hint" }, "Select a mention to see its candidates and the evidence for each."),
    );
    return;
  }
  const { entity, candidates, attended, support } = mention;
  panel.scrollTop = 0;
  panel.replaceChildren(answerHeading(mention));
  if (candidates.length) {
    panel.append(element("ol", { "aria-label": "Candidates" }, ...candidates.map(candidateItem), noneItem(mention)));
    panel.append(element("p", { class: "key" }, partNames(candidates[0])));
  }
  if (attended.length) {
    panel.append(element("h3", {}, "Words it looked at"), element("ul", { class: "chips" }, ...attended.map(wordItem)));
  }
  if (support.length) {
    panel.append(element("h3", {}, "What the other mentions say"));
    panel.append(element("ul", { class: "chips", id: "supporters" }, ...support.map(supportItem)));
  }
  panel.append(...correctionOf(mention, answer.text));
  if (entity) {
    panel.append(element("section", { id: "neighbors", "aria-label": "Neighbours" }));
    showNeighbors([entity.title]);
  }
}

function answerHeading({ surface, entity, reason }) {
  const closing = element("button", { type: "button", class: "close", "aria-label": "Close", title: "Escape" }, "×");
  closing.addEventListener("click", () => {
    const mention = inText(selected);
    close();
    mention.focus({ preventScroll: true });
  });
  const said = element(
    "div",
    {},
    element("p", {}, entity ? `“${surface}” is` : `“${surface}”`),
    element("h2", {}, entity ? wikipediaLink(entity) : "No entity"),
    element("p", {}, entity ? `probability ${percent(entity.probability)}` : (reason ?? "")),
    ...(entity ? [element("p", {}, ...wikidataLink(entity), entityLink(entity))] : []),
  );
  return element("div", { class: "answer" }, said, closing);
}

const entityLink = ({ title }) => element("a", { class: "more", href: entityAddress(title) }, "Names and neighbours");

function partNames({ coherence }) {
  const names = "prior p(e|m): how often the name links there · local: what the words around it say";
  return coherence === null ? names : `${names} · global: how well it coheres with the other mentions`;
}

function candidateItem(candidate, _, all) {
  const largestLocal = Math.max(...all.map(({ local }) => Math.abs(local)));
  const parts = [
    ["prior", candidate.prior, 1],
    ["local", candidate.local, largestLocal],
    ["global", candidate.coherence, 1],
  ].filter(([, value]) => value !== null);
  const bars = parts.map(([name, value, largest]) =>
    element(
      "div",
      {},
      element("dt", {}, name),
      element("dd", { class: "number" }, name === "local" ? signed(value) : decimal(value)),
      bar(name, value, largest),
    ),
  );
  const name = element(
    "div",
    { class: "name" },
    wikipediaLink(candidate),
    ...wikidataLink(candidate),
    ...(candidate.source === "prior" ? [] : [element("span", { class: "source" }, candidate.source)]),
    element("span", { class: "number" }, percent(candidate.probability)),
  );
  return element("li", { class: "candidate" }, name, element("dl", {}, ...bars));
}

function noneItem({ none_probability }) {
  const name = element(
    "div",
    { class: "name" },
    element("span", {}, "None of these"),
    element("span", { class: "number" }, percent(none_probability)),
  );
  return element("li", { class: "none" }, name);
}

function wordItem({ word, weight }, _, all) {
  const item = element("li", { class: "attended" }, `${word} `, element("span", { class: "number" }, decimal(weight)));
  return weighted(item, weight / all[0].weight);
}

function supportItem({ mention, weight }) {
  const kind = weight < 0 ? "against" : "for";
  const { surface, entity } = mentions[mention];
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: kind, "data-mention": mention, title: `${entity?.title ?? surface} speaks ${kind} it` },
      `${surface} `,
      element("span", { class: "number" }, signed(weight)),
    ),
  );
}

/** Neighbours of the last of `path`; the titles before it are the way back. */
async function showNeighbors(path) {
  browsing.abort();
  const { signal } = (browsing = new AbortController());
  const section = byId("neighbors");
  const hadFocus = section.contains(document.activeElement);
  const title = path.at(-1);
  const heading = element("h3", { tabindex: -1 }, `Neighbours of ${title}`);
  section.replaceChildren(heading);
  if (path.length > 1) {
    const back = element("button", { type: "button", class: "back" }, `← ${path.at(-2)}`);
    back.addEventListener("click", () => showNeighbors(path.slice(0, -1)));
    section.append(back);
  }
  if (hadFocus) heading.focus({ preventScroll: true });
  try {
    const url = `entities/${encodeURIComponent(title)}/neighbors?count=${NUM_NEIGHBORS}`;
    const { entity, neighbors } = await ask(url, { signal });
    heading.replaceChildren("Neighbours of ", wikipediaLink(entity));
    section.append(element("ul", {}, ...neighbors.map((neighbor) => neighborItem(neighbor, path))));
  } catch (error) {
    if (!signal.aborted) section.append(element("p", { class: "hint" }, error.message));
  }
}

function neighborItem({ title, similarity }, path) {
  const button = element(
    "button",
    { type: "button", title: `Neighbours of ${title}` },
    element("span", {}, title),
    bar("similarity", similarity, 1),
    element("span", { class: "number" }, decimal(similarity)),
  );
  button.addEventListener("click", () => showNeighbors([...path, title]));
  return element("li", {}, button);
}

// ---- the graph

/** Mentions in two columns, in the order of the text; a line for each answer that speaks for or against another. */
function drawGraph() {
  const focused = graph.contains(document.activeElement) ? document.activeElement.dataset.mention : null;
  const shown = shownInGraph();
  const edges = shown.flatMap((to) =>
    mentions[to].support
      .filter(({ mention }) => shown.includes(mention))
      .map(({ mention, weight }) => ({ from: mention, to, weight })),
  );
  if (!edges.length) {
    graph.replaceChildren(element("p", { class: "hint" }, whyNoGraph()));
    return;
  }
  const { places, width, height } = layOut(shown);
  const strongest = Math.max(...edges.map(({ weight }) => Math.abs(weight)));
  const svg = svgElement("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": `Graph of how ${shown.length} mentions support each other; the arrow keys move between them`,
    class: selected === null ? "" : "selecting",
  });
  graph.replaceChildren(svg);
  // those that stand out come last, on top of the others
  edges.sort((a, b) => (a.to === selected) - (b.to === selected));
  svg.append(...edges.map((edge) => edgePath(edge, places, strongest, width / 2, height / 2)));
  for (const index of shown) addNode(svg, index, places.get(index), width);
  const tabStop = svg.querySelector(`[data-mention="${focused ?? selected}"]`) ?? svg.querySelector(".node");
  tabStop.tabIndex = 0;
  if (focused !== null) tabStop.focus();
}

function shownInGraph() {
  const linked = [...mentions.keys()].filter((index) => mentions[index].entity);
  if (mentions.length <= MAX_GRAPH_MENTIONS) return linked;
  const around = selected === null ? [] : [selected, ...mentions[selected].support.map(({ mention }) => mention)];
  return linked.filter((index) => around.includes(index));
}

function whyNoGraph() {
  if (!mentions.length) return "Which mentions support each other appears here.";
  if (mentions.length > MAX_GRAPH_MENTIONS && selected === null) return "Select a mention to see what supports it.";
  const isLocal = mentions.every(({ entity }) => !entity || entity.coherence === null);
  return isLocal ? "This model links every mention by itself." : "No mention here speaks for another.";
}

function layOut(shown) {
  const width = Math.max(240, graph.clientWidth);
  const numLeft = Math.ceil(shown.length / 2);
  const gap = shown.length > 12 ? 40 : 68; // never less than two lines of label
  const height = Math.max(204, numLeft * gap);
  const reach = 0.25 * width - 35;
  const places = new Map(
    shown.map((index, k) => {
      const [row, numRows, side] = k < numLeft ? [k, numLeft, -1] : [k - numLeft, shown.length - numLeft, 1];
      const y = height / 2 + (row - (numRows - 1) / 2) * gap;
      const x = width / 2 + side * reach * Math.sqrt(1 - ((y - height / 2) / (0.62 * height)) ** 2);
      return [index, { x, y, side }];
    }),
  );
  return { places, width, height };
}

function edgePath({ from, to, weight }, places, strongest, middleX, middleY) {
  const [a, b] = [places.get(from), places.get(to)];
  const length = Math.hypot(b.x - a.x, b.y - a.y);
  // bent towards the middle, and to its own left, so that the two directions of a pair lie side by side
  const x = (a.x + b.x) / 4 + middleX / 2 + (10 * (b.y - a.y)) / length;
  const y = (a.y + b.y) / 4 + middleY / 2 - (10 * (b.x - a.x)) / length;
  const attributes = {
    class: `edge ${weight < 0 ? "against" : "for"}${to === selected ? " on" : ""}`,
    d: `M${a.x} ${a.y}Q${x} ${y} ${b.x} ${b.y}`,
    "stroke-width": 1 + (5 * Math.abs(weight)) / strongest,
    "data-from": from,
    "data-to": to,
  };
  const title = `${mentions[from].surface} on ${mentions[to].surface}: ${signed(weight)}`;
  return svgElement("path", attributes, svgElement("title", {}, title));
}

function addNode(svg, index, { x, y, side }, width) {
  const { surface, entity } = mentions[index];
  const room = (side < 0 ? x : width - x) - 14;
  const anchor = { x: x + 14 * side, "text-anchor": side < 0 ? "end" : "start" };
  const labels = [
    svgElement("text", { ...anchor, y: y - 1 }, surface),
    svgElement("text", { ...anchor, y: y + 14, class: "title" }, entity.title),
  ];
  const attributes = {
    class: "node",
    role: "button",
    tabindex: -1,
    "data-mention": index,
    "aria-pressed": index === selected,
  };
  const target = svgElement("rect", { x: side < 0 ? 0 : x - 12, y: y - 18, width: room + 26, height: 36, rx: 6 });
  const circle = svgElement("circle", { cx: x, cy: y, r: index === selected ? 8 : 6 });
  const title = svgElement("title", {}, `${surface}: ${entity.title}`);
  svg.append(svgElement("g", attributes, title, target, circle, ...labels));
  for (const label of labels) shorten(label, room);
}

function shorten(label, room) {
  const points = Array.from(label.textContent);
  while (points.length > 1 && label.getComputedTextLength() > room) {
    points.pop();
    label.textContent = `${points.join("").trimEnd()}…`;
  }
}

// ---- the address: #text=...&threshold=0.5&mode=all holds a text, #entity=... an entity. Servers never see it

let shared = "#"; // the address of the text

function addressOf({ text, mentions }) {
  const parts = { text, threshold: threshold.value / 100, mode: mentions };
  const kept = Object.entries(parts).filter(([, value]) => value);
  return `#${new URLSearchParams(kept)}`;
}

/** Shows what the address asks for. */
function open() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const entity = asked.get("entity");
  document.body.classList.toggle("entity-only", entity !== null);
  byId("entity").hidden = entity === null;
  if (entity !== null) {
    showEntity(entity, shared);
    return;
  }
  leaveEntity();
  shared = location.hash || "#";
  const text = asked.get("text");
  if (text === null || text === answer?.text) return;
  source.value = text;
  threshold.value = 100 * (Number(asked.get("threshold")) || 0);
  request.elements.mode.value = asked.get("mode") === "all" ? "all" : "";
  link();
}

async function copy(button, content, done) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(content);
    button.textContent = done;
  } catch {
    button.textContent = "The browser does not let this page copy";
  }
  setTimeout(() => (button.textContent = label), 3000);
}

byId("share").addEventListener("click", ({ target }) => {
  if (answer.text.length > MAX_SHARED_CHARACTERS) {
    say(`The text is too long for a link: it has more than ${MAX_SHARED_CHARACTERS} characters.`, { problem: true });
    return;
  }
  shared = addressOf({ text: answer.text, mentions: mode() });
  history.replaceState(null, "", shared);
  copy(target, location.href, "Link copied");
});

byId("copy").addEventListener("click", ({ target }) =>
  copy(target, JSON.stringify({ text: answer.text, mentions, version: answer.version }, null, 2), "JSON copied"),
);

// ---- the start

request.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!tokenRow.hidden) {
    sessionStorage.setItem(TOKEN, token.value.trim());
    askWhetherAccepted();
  }
  link();
});

request.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    request.requestSubmit();
  }
});

byId("example").addEventListener("click", () => {
  source.value = EXAMPLE;
  request.requestSubmit();
});

threshold.addEventListener("input", () => {
  const before = selected;
  apply();
  if (answer) select(before);
});

for (const choice of request.elements.mode) choice.addEventListener("change", () => answer && link());

window.addEventListener("hashchange", open);

let drawnWidth = 0;
new ResizeObserver(() => {
  if (graph.clientWidth === drawnWidth) return;
  drawnWidth = graph.clientWidth;
  drawGraph();
}).observe(graph);

close();
open();
askWhetherAccepted();
