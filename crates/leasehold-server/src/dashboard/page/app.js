// Starts the page: who is here, what is to be seen, and what happens meanwhile.

import { logIn, logOut, mayBy, whoAmI } from "./api.js";
import { prepare as prepareBreak } from "./break.js";
import { LeaseView } from "./lease.js";
import { Live } from "./live.js";
import { Rows } from "./rows.js";
import { Table } from "./table.js";
import { TotalsView } from "./totals.js";
import { announce, clock, find, say, visible } from "./words.js";

// How long somebody has stopped typing before it is searched.
const TYPED = 200;

const STATES = { live: "Live", waiting: "Connecting again", refused: "Not connected" };

let scopes = [];
// Where the list was when a lease was opened.
let listAddress = "#/";
let opened = null;
let rows = null;
let connected = "";

const may = (right, name) => mayBy(scopes)(right, name);

const trouble = (problem) => {
  if (problem.status === 401) {
    askWho();
    return;
  }
  const line = find("trouble");
  say(line, problem.status ? problem.message : "The service does not answer. What is shown may be old.");
  line.hidden = false;
};

const noTrouble = () => {
  find("trouble").hidden = true;
};

const table = new Table(trouble);
const view = new LeaseView({ may, trouble });
const totals = new TotalsView();

const live = new Live({
  told: (event) => {
    if (rows) rows.apply(event);
    if (opened) view.apply(event);
  },
  missed: () => {
    noTrouble();
    if (opened) view.load();
    if (!rows) return;
    rows.suspectAll();
    if (rows.pages.length === 0) rows.more().then(counted).catch(trouble);
    else table.tick();
  },
  state: (state) => {
    const line = find("connection");
    line.dataset.state = state;
    line.textContent = state === "live" ? STATES.live : `${STATES[state]} since ${clock(Date.now())}`;
    if (connected === "live" && state !== "live") announce("The connection is lost. What is shown may be old.");
    if (connected && connected !== "live" && state === "live") announce("Connected again.");
    connected = state;
    // Why it was refused is said by another question.
    if (state === "refused") (rows && rows.pages.length === 0 ? rows.more() : whoAmI()).catch(trouble);
  },
});

// Once it is drawn.
const counted = () => setTimeout(() => announce(find("count").textContent), 100);

const filterOf = (parameters) => ({
  kind: parameters.get("kind") === "gate" ? "gate" : "lock",
  prefix: parameters.get("prefix") || "",
  show: ["held", "free", "expiring"].includes(parameters.get("show")) ? parameters.get("show") : "all",
  state: parameters.get("state") || "",
});

const addressOf = ({ kind, prefix, show, state }) => {
  const parameters = new URLSearchParams();
  if (kind !== "lock") parameters.set("kind", kind);
  if (prefix) parameters.set("prefix", prefix);
  if (show !== "all") parameters.set("show", show);
  if (state) parameters.set("state", state);
  const text = parameters.toString();
  return text ? `#/?${text}` : "#/";
};

const showList = (filter) => {
  const from = opened;
  opened = null;
  view.hide();
  document.title = "Leasehold";
  for (const [id, value] of Object.entries(filter)) {
    // Whoever is typing there knows better.
    if (find(id) !== document.activeElement) find(id).value = value;
  }
  find("list").hidden = false;
  totals.start();
  const known = rows && addressOf(rows.filter) === addressOf(filter);
  if (!known) {
    rows = new Rows(filter, () => {
      noTrouble();
      table.later();
    });
    table.show(rows);
  } else {
    table.rows = rows;
    rows.suspectAll();
    table.later();
    if (from) table.go(table.current);
  }
  listAddress = addressOf(filter);
  const same = live.prefix === filter.prefix && live.source;
  live.follow(filter.prefix);
  // Otherwise it is loaded as soon as the stream is open.
  if (same && !known) rows.more().then(counted).catch(trouble);
};

const showLease = (kind, name) => {
  opened = { kind, name };
  find("list").hidden = true;
  totals.stop();
  table.hide();
  document.title = `${visible(name)} – Leasehold`;
  noTrouble();
  view.show(kind, name, listAddress);
  live.follow(name);
  view.load();
};

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
};

const go = () => {
  const hash = location.hash || "#/";
  // `#main` is the skip link's.
  if (!hash.startsWith("#/")) return;
  const lease = /^#\/(lock|gate)\/(.+)$/.exec(hash);
  const name = lease && decoded(lease[2]);
  if (name) showLease(lease[1], name);
  else showList(filterOf(new URLSearchParams(hash.split("?")[1] || "")));
};

// The states that were seen, to choose from.
const suggest = () => {
  const known = new Set([...find("states").children].map((option) => option.value));
  for (const row of rows.all.slice(0, 500)) {
    if (!row.state || known.has(row.state) || known.size >= 50) continue;
    known.add(row.state);
    find("states").append(new Option("", row.state));
  }
};

const search = () => {
  const filter = { kind: find("kind").value, prefix: find("prefix").value, show: find("show").value, state: find("state").value };
  const target = addressOf(filter);
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
    typing = setTimeout(search, event.target.tagName === "SELECT" ? 0 : TYPED);
  });
  find("prefix").addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown") return;
    event.preventDefault();
    table.go(0);
  });
  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest("input, select, textarea, dialog");
    if (typed || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "/" && !find("list").hidden) {
      event.preventDefault();
      find("prefix").focus();
    } else if (event.key === "Escape" && opened) {
      location.hash = listAddress;
    }
  });
};

// Nobody is signed in, or not any more.
const askWho = () => {
  live.stop();
  totals.stop();
  table.hide();
  view.hide();
  rows = null;
  opened = null;
  find("list").hidden = true;
  find("who").textContent = "";
  find("log-out").hidden = true;
  find("connection").textContent = "";
  noTrouble();
  find("log-in").hidden = false;
  find("token").focus();
};

const enter = (myself) => {
  scopes = myself.scopes;
  find("log-in").hidden = true;
  say(find("who"), myself.principal || "");
  find("log-out").hidden = myself.principal === null;
  go();
};

const prepareLogIn = () => {
  find("log-in").addEventListener("submit", (event) => {
    event.preventDefault();
    const token = find("token");
    find("log-in-problem").textContent = "";
    logIn(token.value.trim())
      .then((myself) => {
        token.value = "";
        enter(myself);
        find("main").focus();
      })
      .catch((problem) => {
        say(find("log-in-problem"), problem.message);
      });
  });
  find("log-out").addEventListener("click", () => logOut().then(askWho, trouble));
};

prepareBreak();
prepareFilter();
prepareLogIn();
addEventListener("hashchange", () => {
  if (find("log-in").hidden) go();
});
setInterval(() => {
  table.tick();
  view.tick();
  if (rows && !opened) suggest();
}, 1000);
whoAmI().then(enter, trouble);
