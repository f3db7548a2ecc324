// What the page asks of the service. Paths are relative, so that it works behind a proxy that adds a folder.

// What the service refused, in its own words.
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `the service answered with ${status}`);
    this.status = status;
    this.type = document.type || "";
  }
}

const ask = async (method, path, body) => {
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

const named = (kind, what, name) => `${collection(kind)}${what}?name=${encodeURIComponent(name)}`;

// A page of leases, by the words that the service has for it.
export const list = async ({ kind, prefix, held, state, cursor, limit }) => {
  const query = new URLSearchParams();
  if (prefix) query.set("prefix", prefix);
  if (held !== undefined) query.set("held", held);
  if (state) query.set("state", state);
  if (cursor) query.set("cursor", cursor);
  query.set("limit", limit);
  const page = await ask("GET", `${collection(kind)}?${query}`);
  return { leases: page[collection(kind)], cursor: page.cursor };
};

// What is known of one name; null if that is nothing.
export const show = async (kind, name) => {
  try {
    return await ask("GET", named(kind, "", name));
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
};

export const history = (kind, name) => ask("GET", named(kind, "/history", name));

export const totals = () => ask("GET", "totals");

export const breakLease = (kind, name, { fence, reason, now }) =>
  ask("POST", named(kind, "/break", name), { force: true, fence, reason, now });

export const whoAmI = () => ask("GET", "whoami");

export const logIn = (token) => ask("POST", "login", { token });

export const logOut = () => ask("POST", "logout");

// Whether somebody with these scopes has a right on a name. Only for what is shown: the service decides again.
export const mayBy = (scopes) => (right, name) =>
  scopes.some((scope) => {
    const colon = scope.indexOf(":");
    const word = scope.slice(0, colon);
    return (word === right || word === "admin") && name.startsWith(scope.slice(colon + 1));
  });
