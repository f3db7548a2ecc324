// Starts the page: signs in, shows the list or one lease, and subscribes to events.

import { logIn, logOut, scopesAllow, store, version, whoAmI } from "./api.js";
import { prepare as prepareBreak } from "./break.js";
import { LeaseView } from "./lease.js";
import { EventSubscription } from "./events.js";
import { Rows } from "./rows.js";
import { formatSort, nextSort, parseSort } from "./sort.js";
import { Table } from "./table.js";
import { TotalsView } from "./totals.js";
import { announce, escapeHidden, find, formatFullTime, formatTime, setText } from "./dom.js";

// How long to wait after the last key before searching.
const SEARCH_DELAY = 200;

let scopes = [];
// The address of the list from which a lease was opened.
let listAddress = "#/";
let opened = null;
let rows = null;
// The state of the event stream, and when it was lost; null before it was open.
let connection = "";
let lost = null;

const may = (right, name) => scopesAllow(scopes, right, name);

const showError = (problem) => {
  if (problem.status === 401) {
    showLogIn();
    return;
  }
  // The header says so already.
  if (!problem.status && lost !== null) return;
  const line = find("error");
  setText(line, problem.status ? problem.message : "The service does not answer. This page may be out of date.");
  line.hidden = false;
};

const hideError = () => {
  find("error").hidden = true;
};

// Returns the filter in the form, which may be newer than that of the rows.
const filterInForm = () => ({ kind: find("kind").value, prefix: find("prefix").value, show: find("show").value, state: find("state").value });

// Sorts by a column, and keeps that in the address.
const sortBy = (column) => {
  const filter = filterInForm();
  location.replace(addressOf(filter, nextSort(sortInAddress(filter), column, filter.state === "")));
};

// Shows the version of the service and, to users who may read the metrics, the kind of its store. The page works without.
const showVersion = async () => {
  try {
    const [number, kind] = await Promise.all([version(), may("read", "") ? store() : ""]);
    // Not after the user has signed out.
    if (connection) setText(find("version"), `Version ${number}${kind ? `, store: ${kind}` : ""}`);
  } catch {
    setText(find("version"), "");
  }
};

// Dims the page while the event stream is down, and says of when the shown state is. Lists may still be loaded.
const showConnection = () => {
  const line = find("connection");
  const isLost = connection !== "live" && lost !== null;
  line.dataset.state = connection;
  document.body.dataset.connection = isLost ? "lost" : "";
  const time = Math.max(lost, Date.now() - (opened ? view.age() : table.age()));
  line.title = isLost ? formatFullTime(time) : "";
  if (isLost) setText(line, `Disconnected, showing the state of ${formatTime(time)}`);
  else setText(line, { live: "Live", waiting: "Connecting", refused: "Not connected" }[connection]);
};

const table = new Table({ showError, onSort: sortBy });
const view = new LeaseView({ may, showError });
const totals = new TotalsView();

const events = new EventSubscription({
  onEvent: (event) => {
    if (rows) rows.apply(event);
    if (opened) view.apply(event);
  },
  onMissed: () => {
    hideError();
    if (opened) view.load();
    if (!rows) return;
    rows.markAllMissed();
    if (rows.pages.length === 0) rows.more().catch(showError);
    else table.tick();
  },
  onState: (state) => {
    const before = connection;
    connection = state;
    if (state === "live") {
      lost = null;
      hideError();
      // After a reconnect it may be another one.
      if (before !== "live") showVersion();
    } else if (before === "live") {
      lost = Date.now();
    }
    showConnection();
    if (before === "live" && state !== "live") announce(find("connection").textContent);
    if (before && before !== "live" && state === "live") announce("Connected again.");
    // An event source does not show why it was refused; the answer to another request does.
    if (state === "refused") (rows && rows.pages.length === 0 ? rows.more() : whoAmI()).catch(showError);
  },
});

// Announces the count after it was drawn, in the same frame.
const announceCount = () => requestAnimationFrame(() => announce(find("count").textContent));

const filterOf = (parameters) => ({
  kind: parameters.get("kind") === "gate" ? "gate" : "lock",
  prefix: parameters.get("prefix") || "",
  show: ["held", "free", "expiring"].includes(parameters.get("show")) ? parameters.get("show") : "all",
  state: parameters.get("state") || "",
});

const parametersInAddress = () => new URLSearchParams(location.hash.split("?")[1] || "");

const sortInAddress = ({ state }) => parseSort(parametersInAddress().get("sort") || "", state === "");

const addressOf = ({ kind, prefix, show, state }, sort = null) => {
  const parameters = new URLSearchParams();
  if (kind !== "lock") parameters.set("kind", kind);
  if (prefix) parameters.set("prefix", prefix);
  if (show !== "all") parameters.set("show", show);
  if (state) parameters.set("state", state);
  if (sort) parameters.set("sort", formatSort(sort));
  const text = parameters.toString();
  return text ? `#/?${text}` : "#/";
};

const announceSort = (sort) => {
  if (!sort) announce("Not sorted by a column");
  else announce(`Sorted by ${table.titleOf(sort.column)}, ${sort.isDescending ? "descending" : "ascending"}`);
};

const showList = (filter, sort) => {
  const wasOpened = opened;
  opened = null;
  view.hide();
  document.title = "Leasehold";
  for (const [id, value] of Object.entries(filter)) {
    // Do not overwrite what the user is typing.
    if (find(id) !== document.activeElement) find(id).value = value;
  }
  find("list").hidden = false;
  totals.start();
  const isLoaded = rows && addressOf(rows.filter) === addressOf(filter);
  const wasSorted = isLoaded && formatSort(rows.sort) === formatSort(sort);
  if (!isLoaded) {
    let isAnnounced = false;
    const loaded = new Rows(filter, () => {
      hideError();
      table.scheduleDraw();
      if (isAnnounced || loaded.pages.length === 0) return;
      isAnnounced = true;
      announceCount();
    });
    rows = loaded;
    rows.setSort(sort);
    table.show(rows);
  } else if (wasSorted) {
    table.rows = rows;
    rows.markAllMissed();
    table.scheduleDraw();
    if (wasOpened) table.focusRow(table.current);
  } else {
    rows.setSort(sort);
    table.show(rows);
    announceSort(sort);
  }
  listAddress = addressOf(filter, sort);
  const isSubscribed = events.prefix === filter.prefix && events.source;
  events.follow(filter.prefix);
  // Otherwise it is loaded as soon as the stream is open.
  if (isSubscribed && !isLoaded) rows.more().catch(showError);
};

const showLease = (kind, name) => {
  opened = { kind, name };
  find("list").hidden = true;
  totals.stop();
  table.hide();
  document.title = `${escapeHidden(name)} – Leasehold`;
  hideError();
  view.show(kind, name, listAddress);
  events.follow(name);
  view.load();
};

const decode = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
};

const showLocation = () => {
  const hash = location.hash || "#/";
  // `#main` is the target of the skip link.
  if (!hash.startsWith("#/")) return;
  const lease = /^#\/(lock|gate)\/(.+)$/.exec(hash);
  const name = lease && decode(lease[2]);
  if (name) showLease(lease[1], name);
  else {
    const filter = filterOf(parametersInAddress());
    showList(filter, sortInAddress(filter));
  }
};

// Offers the states of the loaded leases as suggestions.
const suggestStates = () => {
  const known = new Set([...find("states").children].map((option) => option.value));
  for (const row of rows.all.slice(0, 500)) {
    if (!row.state || known.has(row.state) || known.size >= 50) continue;
    known.add(row.state);
    find("states").append(new Option("", row.state));
  }
};

const search = () => {
  const filter = filterInForm();
  const target = addressOf(filter, sortInAddress(filter));
  if (target !== listAddress) location.replace(target);
};

const prepareFilter = () => {
  let typing = 0;
  const form = find("filter");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  form.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(search, event.target.tagName === "SELECT" ? 0 : SEARCH_DELAY);
  });
  find("prefix").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    table.focusRow(0);
  });
  document.addEventListener("keydown", (event) => {
    const isInput = event.target.closest("input, select, textarea, dialog");
    if (isInput || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "/" && !find("list").hidden) {
      event.preventDefault();
      find("prefix").focus();
    } else if (event.key === "Escape" && opened) {
      location.hash = listAddress;
    }
  });
};

// Shows the form to sign in, also after a session has ended.
const showLogIn = () => {
  events.stop();
  totals.stop();
  table.hide();
  view.hide();
  rows = null;
  opened = null;
  find("list").hidden = true;
  find("user").textContent = "";
  find("log-out").hidden = true;
  connection = "";
  lost = null;
  find("connection").textContent = "";
  find("version").textContent = "";
  document.body.dataset.connection = "";
  hideError();
  find("log-in").hidden = false;
  find("token").focus();
};

const enter = (user) => {
  scopes = user.scopes;
  find("log-in").hidden = true;
  setText(find("user"), user.principal || "");
  find("log-out").hidden = user.principal === null;
  showLocation();
};

const prepareLogIn = () => {
  find("log-in").addEventListener("submit", (event) => {
    event.preventDefault();
    const token = find("token");
    find("log-in-problem").textContent = "";
    logIn(token.value.trim())
      .then((user) => {
        token.value = "";
        enter(user);
        find("main").focus();
      })
      .catch((problem) => {
        setText(find("log-in-problem"), problem.message);
      });
  });
  find("log-out").addEventListener("click", () => logOut().then(showLogIn, showError));
};

prepareBreak();
prepareFilter();
prepareLogIn();
addEventListener("hashchange", () => {
  if (find("log-in").hidden) showLocation();
});
setInterval(() => {
  table.tick();
  view.tick();
  if (connection) showConnection();
  if (rows && !opened) suggestStates();
}, 1000);
whoAmI().then(enter, showError);
