// The requests of the page. Paths are relative, so that it works behind a proxy that adds a path prefix.

// A request that the service refused.
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `the service answered with ${status}`);
    this.status = status;
    this.type = document.type || "";
  }
}

const send = async (method, path, body) => {
  const options = { method, credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { "content-type": "application/json" };
  }
  const answer = await fetch(path, options);
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, document);
  return document;
};

const collection = (kind) => (kind === "gate" ? "gates" : "locks");

const pathOf = (kind, action, name) => `${collection(kind)}${action}?name=${encodeURIComponent(name)}`;

// Loads a page of leases.
export const list = async ({ kind, prefix, held, state, cursor, limit }) => {
  const query = new URLSearchParams();
  if (prefix) query.set("prefix", prefix);
  if (held !== undefined) query.set("held", held);
  if (state) query.set("state", state);
  if (cursor) query.set("cursor", cursor);
  query.set("limit", limit);
  const page = await send("GET", `${collection(kind)}?${query}`);
  return { leases: page[collection(kind)], cursor: page.cursor };
};

// Loads one name; null if it has no record.
export const show = async (kind, name) => {
  try {
    return await send("GET", pathOf(kind, "", name));
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
};

export const history = (kind, name) => send("GET", pathOf(kind, "/history", name));

export const totals = () => send("GET", "totals");

export const breakLease = (kind, name, { fence, reason, now }) =>
  send("POST", pathOf(kind, "/break", name), { force: true, fence, reason, now });

export const whoAmI = () => send("GET", "whoami");

// Loads the version of the service, which its API description has.
export const version = async () => (await send("GET", "openapi.json")).info.version;

// Loads the kind of the store, which only the metrics have; empty if they do not.
export const store = async () => {
  const answer = await fetch("metrics", { credentials: "same-origin", cache: "no-store" });
  const info = answer.ok && /^leasehold_info\{.*store="([^"]*)"/m.exec(await answer.text());
  return info ? info[1] : "";
};

export const logIn = (token) => send("POST", "login", { token });

export const logOut = () => send("POST", "logout");

// Whether these scopes grant a right on a name. Only for what is shown: the service checks each request.
export const scopesAllow = (scopes, right, name) =>
  scopes.some((scope) => {
    const colon = scope.indexOf(":");
    const word = scope.slice(0, colon);
    return (word === right || word === "admin") && name.startsWith(scope.slice(colon + 1));
  });
