// Shows openapi.json. All of its contents are set as text, so that none can become markup.
"use strict";

const make = (tag, text, ...children) => {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
};

const resolve = (api, value) => {
  if (!value || !value.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((node, key) => node[key], api);
};

const lastSegment = (path) => path.split("/").pop();

// Describes a schema in a few words.
const describe = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return lastSegment(schema.$ref);
  const parts = schema.anyOf || schema.oneOf || schema.allOf;
  if (parts) return parts.map(describe).filter(Boolean).join(schema.allOf ? " and " : " or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${describe(schema.items)}`;
  return [schema.type].flat().filter(Boolean).join(" | ");
};

const table = (headers, rows) => {
  const line = (tag, cells) => make("tr", "", ...cells.map((cell) => make(tag, cell)));
  return make("table", "", make("thead", "", line("th", headers)), make("tbody", "", ...rows.map((row) => line("td", row))));
};

const example = (api, schema) => {
  const first = (schema.anyOf || schema.allOf || [schema])[0];
  const resolved = resolve(api, first);
  const value = resolved && resolved.examples && resolved.examples[0];
  return value ? [make("pre", JSON.stringify(value, null, 2))] : [];
};

const route = (api, method, path, operation) => {
  const summary = make("summary", "");
  const verb = make("span", method);
  verb.className = "method";
  const text = make("span", operation.summary);
  text.className = "text";
  summary.append(verb, make("code", path), text);
  const details = make("details", "", summary);
  if (operation["x-by-query"]) {
    details.append(make("p", "Also: ", make("code", operation["x-by-query"])));
  }
  const scopes = operation["x-scopes"];
  if (scopes) details.append(make("p", `Required scope: ${scopes.join(" or ") || "none, any token"}`));
  const parameters = operation.parameters.map((parameter) => resolve(api, parameter));
  if (parameters.length > 0) {
    const row = (parameter) => [
      parameter.name + (parameter.required ? " *" : ""),
      parameter.in,
      describe(parameter.schema),
      parameter.description,
      parameter.example === undefined ? "" : String(parameter.example),
    ];
    details.append(make("h3", "Parameters"), table(["name", "in", "type", "description", "example"], parameters.map(row)));
  }
  if (operation.requestBody) {
    details.append(make("h3", "Body"));
    for (const [type, content] of Object.entries(operation.requestBody.content)) {
      details.append(make("p", `${type}: ${describe(content.schema)}`), ...example(api, content.schema));
    }
  }
  details.append(make("h3", "Answers"));
  const answers = Object.entries(operation.responses).map(([status, response]) => {
    const [type, content] = Object.entries(response.content || {})[0] || ["", {}];
    const kinds = content.schema && content.schema.allOf ? content.schema.allOf[1].properties.type.enum.join(", ") : describe(content.schema);
    return [status, response.description, type, kinds];
  });
  details.append(table(["status", "description", "content", "schema or problem type"], answers));
  const ok = operation.responses["200"].content["application/json"];
  if (ok && ok.schema) details.append(...example(api, ok.schema));
  details.dataset.text = `${method} ${path} ${operation.summary} ${operation.operationId}`.toLowerCase();
  return details;
};

const schema = (name, schema) => {
  const details = make("details", "", make("summary", "", make("code", name)), make("p", schema.description));
  const required = schema.required || [];
  const rows = Object.entries(schema.properties || {}).map(([member, property]) => [
    member + (required.includes(member) ? " *" : ""),
    describe(property),
    property.description || "",
  ]);
  if (rows.length > 0) details.append(table(["member", "type", "description"], rows));
  details.dataset.text = name.toLowerCase();
  return details;
};

const show = (api) => {
  document.getElementById("about").firstChild.textContent = `${api.info.description} `;
  const main = document.getElementById("routes");
  for (const tag of api.tags) {
    const section = make("section", "", make("h2", tag.name), make("p", tag.description));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags.includes(tag.name)) section.append(route(api, method, path, operation));
      }
    }
    main.append(section);
  }
  const schemas = Object.entries(api.components.schemas).map(([name, value]) => schema(name, value));
  main.append(make("section", "", make("h2", "schemas"), ...schemas));
  document.getElementById("search").addEventListener("input", (event) => {
    const searched = event.target.value.toLowerCase();
    for (const details of main.querySelectorAll("details")) {
      details.hidden = !details.dataset.text.includes(searched);
    }
  });
};

fetch("openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("about").textContent = `Cannot show openapi.json: ${error}`;
  });
