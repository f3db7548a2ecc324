// The view of one lease: its holders, their timeline, its body and its record.

import { history, show } from "./api.js";
import { confirmBreak } from "./break.js";
import { describe, drawTimeline, mergeHistory } from "./timeline.js";
import { ENDINGS, escapeHidden, find, formatFullTime, formatTime, formatTimeLeft, make, makeSvg, makeTime, plural, setText } from "./dom.js";

// How long to wait after an event before loading: several events are often sent together.
const LOAD_DELAY = 120;
// How often to load what events do not contain, such as the number of waiters.
const LOAD_INTERVAL = 3000;

const WINDOWS = [
  ["10 minutes", 600000],
  ["1 hour", 3600000],
  ["All", 0],
];

const HEADERS = ["Owner", "Principal", "Mode", "Fence", "Since", "Renewed", "Time left", ""];
const classOf = (column) => (column === 1 ? { class: "principal" } : column === 3 ? { class: "fence" } : {});

const section = (id, title, ...children) =>
  make("section", { class: "card", "aria-labelledby": `${id}-title` }, make("h3", { id: `${id}-title` }, title), ...children);

export class LeaseView {
  // `may` returns whether the user has a right on a name. `showError` gets errors.
  constructor({ may, showError }) {
    this.may = may;
    this.showError = showError;
    this.name = null;
    this.window = 0;
    this.timer = 0;
  }

  show(kind, name, back) {
    Object.assign(this, { kind, name, lease: null, history: null, sent: 0, holders: new Map() });
    this.build(back);
    find("lease").hidden = false;
    find("lease-title").focus();
  }

  hide() {
    this.name = null;
    clearTimeout(this.timer);
    find("lease").hidden = true;
    find("lease").replaceChildren();
  }

  build(back) {
    const buttons = WINDOWS.map(([title, millis]) => {
      const button = make("button", { type: "button", "aria-pressed": String(millis === this.window) }, title);
      button.addEventListener("click", () => {
        this.window = millis;
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        this.draw();
      });
      return button;
    });
    this.status = make("p", { class: "status", id: "status" });
    this.facts = make("dl", { class: "facts" });
    this.table = make("table", { class: "holders", "aria-labelledby": "holders-title" },
      make("thead", {}, make("tr", {}, ...HEADERS.map((header, column) => make("th", { ...classOf(column), scope: "col" }, header || make("span", { class: "visually-hidden" }, "Action"))))),
      make("tbody"));
    this.free = make("p", { class: "dim", hidden: true }, "No holder.");
    this.table.hidden = true;
    this.svg = makeSvg("svg", { role: "img", class: "timeline" });
    this.periods = make("ol", { class: "periods", reversed: true });
    this.body = make("pre", { class: "body", tabindex: "0", "aria-labelledby": "body-title" });
    const legend = make("p", { class: "legend", "aria-hidden": "true" },
      ...["holding", "released", "completed", "expired", "broken", "unknown"].map((how) =>
        make("span", { "data-how": how }, ENDINGS[how])));
    find("lease").replaceChildren(
      make("nav", { "aria-label": "Back" }, make("a", { href: back }, "← All leases")),
      make("h2", { id: "lease-title", class: "mono", tabindex: "-1" }, this.name),
      this.status,
      section("holders", "Holders", make("div", { class: "wide" }, this.table), this.free),
      section("timeline", "Timeline", make("div", { class: "choice", role: "group", "aria-label": "Period" }, ...buttons),
        this.svg, legend, make("details", {}, make("summary", {}, "As a list"), this.periods)),
      section("body", "Body", this.body),
      section("record", "Record", this.facts),
    );
    if (this.resizeObserver) this.resizeObserver.disconnect();
    this.resizeObserver = new ResizeObserver(() => this.draw());
    this.resizeObserver.observe(this.svg.parentElement);
  }

  apply(event) {
    if (event.name === this.name && event.kind === this.kind) this.scheduleLoad();
  }

  scheduleLoad() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), LOAD_DELAY);
  }

  // Called once a second.
  tick() {
    if (this.name === null || document.hidden) return;
    if (performance.now() - this.sent > LOAD_INTERVAL) this.load();
    this.updateTimes();
    // Drawing would close the tooltip under the pointer.
    if (!this.svg.matches(":hover")) this.draw();
  }

  async load() {
    const { kind, name } = this;
    this.sent = performance.now();
    try {
      const [lease, loaded] = await Promise.all([show(kind, name), history(kind, name)]);
      if (name !== this.name || kind !== this.kind) return;
      this.lease = lease;
      this.history = mergeHistory(loaded, lease);
      this.loaded = performance.now();
      this.render();
    } catch (problem) {
      this.showError(problem);
    }
  }

  // Returns how old the shown state is, in milliseconds.
  age() {
    return this.history ? performance.now() - this.loaded : Infinity;
  }

  // Returns the time until a holder's lease expires, estimated from the last answer.
  left(holder) {
    return Math.max(0, holder.left - (performance.now() - this.loaded));
  }

  render() {
    const { lease } = this;
    const holders = lease ? lease.holders : [];
    const tbody = this.table.tBodies[0];
    const kept = new Map();
    for (const holder of holders) {
      const row = this.holders.get(holder.fence) || this.holderRow(holder);
      kept.set(holder.fence, row);
      tbody.append(...(row.isConnected ? [] : [row]));
      this.fillHolder(row, holder);
    }
    for (const [fence, row] of this.holders) {
      if (kept.has(fence)) continue;
      if (row.contains(document.activeElement)) find("lease-title").focus();
      row.remove();
    }
    this.holders = kept;
    this.table.hidden = holders.length === 0;
    this.table.dataset.principals = holders.some(({ principal }) => principal) ? "some" : "none";
    this.free.hidden = holders.length > 0;
    setText(this.body, lease ? lease.body : "");
    this.body.dataset.empty = lease && lease.body ? "" : "empty";
    this.renderFacts();
    this.updateTimes();
    this.draw();
    const { now, periods } = this.history;
    this.periods.replaceChildren(...periods.map((period) => 
      make("li", { "data-how": period.how, title: describe(period, now, formatFullTime) }, describe(period, now, formatTime))).reverse());
  }

  holderRow(holder) {
    const row = make("tr", {}, ...HEADERS.map((header, column) =>
      make(column === 0 ? "th" : "td", { ...classOf(column), scope: column === 0 && "row", "data-header": header || null })));
    row.cells[6].append(make("span", { class: "bar", "aria-hidden": "true" }, make("i")), make("span", { class: "time" }));
    if (this.may("break", this.name)) {
      const button = make("button", { type: "button", class: "danger" }, "Break…");
      button.addEventListener("click", () => this.confirmBreak(holder.fence));
      row.cells[7].append(button);
    }
    return row;
  }

  fillHolder(row, holder) {
    const { owner, principal, mode, limit, fence, acquireTime, renewTime, broken } = holder;
    const texts = [owner, principal || "", mode + (limit ? `, at most ${limit}` : ""), String(fence), formatTime(acquireTime), formatTime(renewTime)];
    texts.forEach((text, column) => setText(row.cells[column], text));
    row.cells[4].title = formatFullTime(acquireTime);
    row.cells[5].title = formatFullTime(renewTime);
    row.dataset.broken = broken ? "broken" : "";
    row.title = broken ? escapeHidden(`Broken: ${broken}`) : "";
    const button = row.querySelector("button");
    // A broken holder can only be removed, which requires the right `admin`.
    if (button) button.disabled = Boolean(broken) && !this.may("admin", this.name);
  }

  confirmBreak(fence) {
    const holder = this.lease && this.lease.holders.find((holder) => holder.fence === fence);
    if (!holder) return;
    const { kind, name, may } = this;
    confirmBreak({ kind, name, holder, may, done: () => this.scheduleLoad() });
  }

  renderFacts() {
    const { lease } = this;
    const facts = [];
    const fact = (title, ...value) => facts.push(make("dt", {}, title), make("dd", {}, ...value));
    if (lease) {
      fact("Highest fence", make("span", { class: "mono" }, String(lease.fence)));
      if (lease.state) fact("State", `${lease.state}, since `, makeTime(lease.stateSince));
      if (lease.last) fact("Last holder", `${lease.last.owner}: ${ENDINGS[lease.last.how]} at `, makeTime(lease.last.at));
      for (const { owner, broken } of lease.holders) if (broken) fact("Broken", `${owner}: ${broken}`);
      if (lease.reserved) fact("Reserved", "for a waiter");
    }
    fact("History since", makeTime(this.history.since));
    this.facts.replaceChildren(...facts);
  }

  // Updates the bars, the remaining times and the status line.
  updateTimes() {
    const { lease } = this;
    if (!this.history) return;
    if (!lease) {
      setText(this.status, "This name has no record.");
      return;
    }
    for (const holder of lease.holders) {
      const row = this.holders.get(holder.fence);
      const remaining = this.left(holder);
      const [bar, text] = row.cells[6].children;
      bar.firstChild.style.transform = `scaleX(${Math.min(1, Math.max(0, (remaining - 1000) / holder.ttl)).toFixed(4)})`;
      setText(text, formatTimeLeft(remaining));
    }
    const [first] = lease.holders;
    const others = lease.holders.length - 1;
    const waiters = lease.waiters ? `, ${plural(lease.waiters, "waiter", "waiters")}` : "";
    this.status.dataset.status = first ? (first.broken ? "broken" : "held") : "free";
    const held = () => `${first.broken ? "Broken, but not yet free; was held" : "Held"} by ${first.owner}${others > 0 ? ` and ${plural(others, "other", "others")}` : ""}`;
    setText(this.status, (first ? held() : "Free") + waiters);
  }

  draw() {
    if (!this.history || this.name === null) return;
    const now = this.history.now + (performance.now() - this.loaded);
    drawTimeline(this.svg, { ...this.history, now }, this.window);
  }
}
