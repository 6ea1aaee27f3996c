// The documentation of the HTTP interface: shows openapi.json, and sends requests that you fill in.
// Data reaches the document only as text nodes and attributes, never as markup.

const TOKEN = "deeped-ray token"; // its key in sessionStorage, shared with the page
const token = document.getElementById("token");
token.value = sessionStorage.getItem(TOKEN) ?? "";
token.addEventListener("input", () => sessionStorage.setItem(TOKEN, token.value.trim()));

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const api = await (await fetch("openapi.json")).json();

/** A value that fits a schema: its example, its default, or one made from its fields. */
function example(schema, depth = 0) {
  if (schema.$ref) return example(api.components.schemas[schema.$ref.split("/").at(-1)] ?? {}, depth);
  const given = schema.example ?? schema.examples?.[0] ?? schema.default ?? schema.enum?.[0];
  if (given !== undefined) return given;
  const choice = (schema.anyOf ?? schema.oneOf)?.[0];
  if (choice) return example(choice, depth);
  if (depth > 4) return null;
  if (schema.properties)
    return Object.fromEntries(Object.entries(schema.properties).map(([key, of]) => [key, example(of, depth + 1)]));
  if (schema.type === "array") return schema.items ? [example(schema.items, depth + 1)] : [];
  return { string: "", integer: 0, number: 0, boolean: false }[schema.type] ?? null;
}

const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

function parameterField(parameter) {
  const value = parameter.schema?.default ?? "";
  const input = element("input", { name: parameter.name, value, "data-in": parameter.in });
  return element("label", {}, `${parameter.name} (${parameter.in}) ${parameter.description ?? ""}`, input);
}

function bodyField([type, content]) {
  const text = asText(content.example ?? example(content.schema ?? {}));
  return element("label", {}, type, element("textarea", { name: "body", rows: 6, "data-type": type }, text));
}

/** The request that a form describes. */
function requestOf(form, path, method) {
  const query = new URLSearchParams();
  for (const { name, value, dataset } of form.querySelectorAll("input")) {
    if (dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (value) query.set(name, value);
  }
  const headers = token.value ? { Authorization: `Bearer ${token.value.trim()}` } : {};
  const body = form.querySelector("textarea");
  if (body) headers["Content-Type"] = body.dataset.type;
  const url = path.slice(1) + (query.size ? `?${query}` : "");
  return [url || ".", { method: method.toUpperCase(), headers, body: body?.value }];
}

async function send(request, output) {
  try {
    const answer = await fetch(...request);
    const text = await answer.text();
    const isJson = answer.headers.get("Content-Type")?.startsWith("application/json");
    output.textContent = `${answer.status}\n${isJson ? asText(JSON.parse(text)) : text}`;
  } catch {
    output.textContent = "The server does not answer.";
  }
}

function routeCard(path, method, route) {
  const output = element("pre", { role: "status" });
  const fields = [
    ...(route.parameters ?? []).map(parameterField),
    ...Object.entries(route.requestBody?.content ?? {}).slice(0, 1).map(bodyField),
  ];
  const form = element("form", {}, ...fields, element("button", { type: "submit", class: "primary" }, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(requestOf(form, path, method), output);
  });
  const statuses = Object.entries(route.responses).map(([status, { description }]) => `${status} ${description}`);
  return element(
    "section",
    { class: "card" },
    element("h2", {}, `${method.toUpperCase()} ${path}`),
    element("p", {}, route.description ?? ""),
    form,
    output,
    element("details", {}, element("summary", {}, "Answers"), element("pre", {}, statuses.join("\n"))),
  );
}

for (const [path, methods] of Object.entries(api.paths))
  for (const [method, route] of Object.entries(methods))
    document.getElementById("routes").append(routeCard(path, method, route));
