// What all parts of the page use: elements, numbers, and questions to the server.
// Data reaches the document only as text nodes and attributes, never as markup.

export const TOKEN = "deeped-ray token"; // its key in sessionStorage

export const element = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svgElement = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const wikipediaLink = (entity) =>
  element("a", { href: entity.url, target: "_blank", rel: "noopener" }, entity.title);

/** Its Wikidata id as a link, if it has one. */
export const wikidataLink = ({ wikidata }) =>
  wikidata
    ? [element("a", { class: "wikidata", href: `https://www.wikidata.org/wiki/${wikidata}`, target: "_blank", rel: "noopener" }, wikidata)]
    : [];

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.01 ? 1 : 0)}%`;
export const decimal = (value) => value.toFixed(value !== 0 && Math.abs(value) < 0.01 ? 3 : 2);
export const signed = (value) => (value < 0 ? "−" : "+") + decimal(Math.abs(value));

/** Its own page here: names, neighbours, facts. */
export const entityAddress = (title) => `#${new URLSearchParams({ entity: title })}`;

export function bar(name, value, largest) {
  const filled = element("span", {});
  filled.style.width = `${largest ? Math.min(100, (100 * Math.abs(value)) / largest) : 0}%`;
  return element("dd", { class: `bar ${name}${value < 0 ? " negative" : ""}`, "aria-hidden": "true" }, filled);
}

/** Asks, and gives the JSON of the answer; an Error whose message people understand for everything else. */
export async function ask(url, options) {
  const headers = { "Content-Type": "application/json" };
  const known = sessionStorage.getItem(TOKEN);
  if (known) headers.Authorization = `Bearer ${known}`;
  let answer;
  try {
    answer = await fetch(url, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Check that it runs, then try again: your text is still here.");
  }
  if (answer.ok) return answer.json();
  const problem = new Error(explained(answer, await detailOf(answer), known));
  problem.status = answer.status;
  throw problem;
}

async function detailOf(answer) {
  const body = await answer.text();
  let detail = body.slice(0, 300); // a proxy's own errors are plain text
  try {
    detail = JSON.parse(body).detail;
  } catch {}
  if (Array.isArray(detail)) detail = detail.map(({ where, problem }) => `${where.join(".")}: ${problem}`).join("; ");
  return detail || answer.statusText;
}

/** What happened and what to do, for somebody who does not know HTTP. */
function explained({ status, headers }, detail, known) {
  const wait = headers.get("Retry-After");
  const when = wait === null ? "in a moment" : /^\d+$/.test(wait) ? `in ${wait} s` : `after ${wait}`;
  if (status === 401) return known ? "The server does not know this token." : "This server asks for an API token.";
  if (status === 408) return "That took too long. Try a shorter text.";
  if (status === 413) return `That is too much for one request. ${inWords(detail)}`;
  if (status === 429 || status === 503) return `The server is busy. Try again ${when}.`;
  if (status >= 500) return `The server failed (error ${status}). Try again ${when}; its log says why.`;
  return detail;
}

const inWords = (detail) =>
  detail.replace(/^text: String should have at most (\d+) characters$/, (_, limit) => {
    return `A text may have ${Number(limit).toLocaleString("en")} characters.`;
  });
