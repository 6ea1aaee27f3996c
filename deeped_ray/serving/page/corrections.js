// "This is wrong": says what a mention means instead, to a server that takes corrections.

import { TOKEN, ask, element } from "./tools.js";

const MOST_SUGGESTED = 8;
const NONE = "";
let accepted = false;

/** Whether the server takes corrections; the page offers none before it is known. */
export async function askWhetherAccepted() {
  try {
    ({ accepted } = await ask("feedback", { signal: AbortSignal.timeout(10_000) }));
  } catch {} // a token may be missing: then it is asked again with the next text
}

/** A form about one mention of a text, or nothing. */
export function correctionOf(mention, text) {
  if (!accepted) return [];
  const field = element("input", { id: "right", list: "rights", autocomplete: "off", placeholder: "Title or Wikidata id" });
  const titles = element("datalist", { id: "rights" }, ...mention.candidates.map(({ title }) => element("option", { value: title })));
  const token = element("input", { id: "writer", type: "password", autocomplete: "off", spellcheck: "false" });
  const tokenRow = element("p", { hidden: "" }, element("label", { for: "writer" }, "Writers’ token"), token);
  const said = element("p", { role: "status", class: "hint" });
  const none = element("button", { type: "button" }, "It is none of these");
  const form = element(
    "form",
    { id: "correction" },
    element("label", { for: "right" }, `“${mention.surface}” is really`),
    field,
    titles,
    tokenRow,
    element("div", { class: "row" }, element("button", { type: "submit", class: "primary" }, "Send"), none),
    said,
  );

  const send = async (title) => {
    if (token.value) sessionStorage.setItem(TOKEN, token.value.trim());
    try {
      const mentions = [{ start: mention.start, end: mention.end, title }];
      await ask("feedback", { method: "POST", body: JSON.stringify({ text, mentions }), signal: AbortSignal.timeout(30_000) });
      said.textContent = "Thank you. The next training can learn it; until then the answer stays.";
      said.classList.remove("problem");
    } catch (error) {
      tokenRow.hidden = error.status !== 401 && error.status !== 403;
      said.textContent = tokenRow.hidden ? error.message : "Correcting takes the writers’ token.";
      said.classList.add("problem");
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim() === NONE) field.focus();
    else send(field.value.trim());
  });
  none.addEventListener("click", () => send(null));
  field.addEventListener("input", () => suggest(field.value, titles));
  return [element("details", { id: "correct" }, element("summary", {}, "Not right?"), form)];
}

let suggesting = new AbortController();

/** Entities whose names are like what was typed. */
async function suggest(typed, titles) {
  suggesting.abort();
  const { signal } = (suggesting = new AbortController());
  if (typed.trim().length < 3) return;
  try {
    const body = JSON.stringify({ name: typed.slice(0, 500), count: MOST_SUGGESTED });
    const { resembling } = await ask("search", { method: "POST", body, signal });
    titles.replaceChildren(...resembling.map(({ title }) => element("option", { value: title })));
  } catch {} // suggestions may fail: what was typed can be sent all the same
}
