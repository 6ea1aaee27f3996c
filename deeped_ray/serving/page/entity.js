// The page of one entity: its names, its neighbours, and what was counted of it.

import { ask, bar, decimal, element, entityAddress, percent, wikidataLink, wikipediaLink } from "./tools.js";

const NUM_ROWS = 15;
const section = document.getElementById("entity");
let showing = new AbortController();

/** Shows an entity in place of everything else; `back` is the address of what was there before. */
export async function showEntity(title, back) {
  showing.abort();
  const { signal } = (showing = new AbortController());
  const leave = element("a", { class: "button", href: back }, "← Text");
  const heading = element("h2", { tabindex: -1 }, title);
  section.replaceChildren(leave, heading);
  document.title = `${title} · deeped-ray`;
  try {
    const address = `entities/${encodeURIComponent(title)}`;
    const [entity, { names }, { neighbors }] = await Promise.all(
      ["", `/names?count=${NUM_ROWS}`, `/neighbors?count=${NUM_ROWS}`].map((rest) => ask(address + rest, { signal })),
    );
    heading.textContent = entity.title;
    section.append(facts(entity), element("div", { class: "columns" }, namesOf(names), neighborsOf(neighbors)));
    heading.focus({ preventScroll: true });
  } catch (error) {
    if (signal.aborted) return;
    section.append(element("p", { class: "problem", role: "alert" }, error.message));
    if (error.status === 404) await showAlike(title, signal);
  }
}

/** Links to entities whose names are like one that is not known. */
async function showAlike(name, signal) {
  const body = JSON.stringify({ name, count: 5 });
  const { resembling } = await ask("search", { method: "POST", body, signal }).catch(() => ({ resembling: [] }));
  if (signal.aborted || !resembling.length) return;
  const links = resembling.map(({ title }) => element("li", {}, element("a", { href: entityAddress(title) }, title)));
  section.append(element("ul", { class: "measured" }, ...links));
}

export function leaveEntity() {
  showing.abort();
  document.title = "deeped-ray";
}

function facts(entity) {
  const page = wikipediaLink(entity);
  page.textContent = entity.url.replace(/^https?:\/\//, "");
  const counted = [
    entity.is_person ? "a person" : "",
    `${entity.num_links.toLocaleString("en")} links lead here`,
    `${entity.num_words.toLocaleString("en")} words on its page`,
  ];
  return element("p", { class: "facts" }, page, ...wikidataLink(entity), counted.filter(Boolean).join(" · "));
}

function namesOf(names) {
  const rows = names.map(({ name, prior }) =>
    element("li", {}, element("span", {}, name), bar("prior", prior, 1), element("span", { class: "number" }, percent(prior))),
  );
  const about = "How often each name means this entity, and not another.";
  return list("Names", about, rows, "Nothing links here by a name.");
}

function neighborsOf(neighbors) {
  const rows = neighbors.map(({ title, similarity }) =>
    element(
      "li",
      {},
      element("a", { href: entityAddress(title) }, title),
      bar("similarity", similarity, 1),
      element("span", { class: "number" }, decimal(similarity)),
    ),
  );
  return list("Neighbours", "Entities that are near in meaning.", rows, "It has no vector, so it has no neighbours.");
}

function list(title, about, rows, nothing) {
  const body = rows.length ? element("ul", { class: "measured" }, ...rows) : element("p", { class: "hint" }, nothing);
  return element("div", {}, element("h3", {}, title), element("p", { class: "hint" }, about), body);
}
