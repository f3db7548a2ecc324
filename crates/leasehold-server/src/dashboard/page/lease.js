// One lease: who holds it, who did, and what is in it.

import { history, show } from "./api.js";
import { askToBreak } from "./break.js";
import { describe, drawTimeline, together } from "./timeline.js";
import { ENDINGS, clock, draw as shape, find, left, make, say, several, visible } from "./words.js";

// Changes that come together are looked at together.
const SOON = 120;
// What events do not tell, such as who waits, is looked at now and then.
const EVERY = 3000;

const WINDOWS = [
  ["10 minutes", 600000],
  ["1 hour", 3600000],
  ["All", 0],
];

const HEADS = ["Owner", "Principal", "Mode", "Fence", "Since", "Renewed", "Time left", ""];
const headOf = (place) => (place === 1 ? { class: "principal" } : place === 3 ? { class: "fence" } : {});

const section = (id, title, ...children) =>
  make("section", { class: "card", "aria-labelledby": `${id}-title` }, make("h3", { id: `${id}-title` }, title), ...children);

export class LeaseView {
  // `may` says whether whoever is signed in has a right on a name; `trouble` is told what went wrong.
  constructor({ may, trouble }) {
    this.may = may;
    this.trouble = trouble;
    this.name = null;
    this.window = 0;
    this.timer = 0;
  }

  show(kind, name, back) {
    Object.assign(this, { kind, name, lease: null, past: null, at: 0, holders: new Map() });
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
    const buttons = WINDOWS.map(([title, span]) => {
      const button = make("button", { type: "button", "aria-pressed": String(span === this.window) }, title);
      button.addEventListener("click", () => {
        this.window = span;
        for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
        this.draw();
      });
      return button;
    });
    this.standing = make("p", { class: "standing", id: "standing" });
    this.facts = make("dl", { class: "facts" });
    this.table = make("table", { class: "holders", "aria-labelledby": "holders-title" },
      make("thead", {}, make("tr", {}, ...HEADS.map((head, place) => make("th", { ...headOf(place), scope: "col" }, head || make("span", { class: "unseen" }, "Action"))))),
      make("tbody"));
    this.nobody = make("p", { class: "dim", hidden: true }, "Nobody holds it.");
    this.table.hidden = true;
    this.svg = shape("svg", { role: "img", class: "timeline" });
    this.told = make("ol", { class: "told", reversed: true });
    this.body = make("pre", { class: "body", tabindex: "0", "aria-labelledby": "body-title" });
    const legend = make("p", { class: "legend", "aria-hidden": "true" },
      ...["holding", "released", "completed", "expired", "broken", "unknown"].map((how) =>
        make("span", { "data-how": how }, ENDINGS[how])));
    find("lease").replaceChildren(
      make("nav", { "aria-label": "Back" }, make("a", { href: back }, "← All leases")),
      make("h2", { id: "lease-title", class: "mono", tabindex: "-1" }, this.name),
      this.standing,
      section("holders", "Holders", make("div", { class: "wide" }, this.table), this.nobody),
      section("timeline", "Timeline", make("div", { class: "choice", role: "group", "aria-label": "How far back" }, ...buttons),
        this.svg, legend, make("details", {}, make("summary", {}, "As a list"), this.told)),
      section("body", "Body", this.body),
      section("record", "Record", this.facts),
    );
    if (this.watching) this.watching.disconnect();
    this.watching = new ResizeObserver(() => this.draw());
    this.watching.observe(this.svg.parentElement);
  }

  apply(told) {
    if (told.name === this.name && told.kind === this.kind) this.soon();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), SOON);
  }

  // Once a second.
  tick() {
    if (this.name === null || document.hidden) return;
    if (performance.now() - this.at > EVERY) this.load();
    this.times();
    // Whoever reads what it says below the pointer is not disturbed.
    if (!this.svg.matches(":hover")) this.draw();
  }

  async load() {
    const { kind, name } = this;
    this.at = performance.now();
    try {
      const [lease, past] = await Promise.all([show(kind, name), history(kind, name)]);
      if (name !== this.name || kind !== this.kind) return;
      this.lease = lease;
      this.past = together(past, lease);
      this.loaded = performance.now();
      this.render();
    } catch (problem) {
      this.trouble(problem);
    }
  }

  // The service's time now, as far as it can be told from what it last said.
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
    this.nobody.hidden = holders.length > 0;
    say(this.body, lease ? lease.body : "");
    this.body.dataset.empty = lease && lease.body ? "" : "empty";
    this.renderFacts();
    this.times();
    this.draw();
    const { now } = this.past;
    this.told.replaceChildren(...this.past.tenures.map((one) => make("li", { "data-how": one.how }, describe(one, now))).reverse());
  }

  holderRow(holder) {
    const row = make("tr", {}, ...HEADS.map((head, place) =>
      make(place === 0 ? "th" : "td", { ...headOf(place), scope: place === 0 && "row", "data-head": head || null })));
    row.cells[6].append(make("span", { class: "bar", "aria-hidden": "true" }, make("i")), make("span", { class: "time" }));
    if (this.may("break", this.name)) {
      const button = make("button", { type: "button", class: "danger" }, "Break…");
      button.addEventListener("click", () => this.ask(holder.fence));
      row.cells[7].append(button);
    }
    return row;
  }

  fillHolder(row, holder) {
    const { owner, principal, mode, limit, fence, acquireTime, renewTime, broken } = holder;
    const words = [owner, principal || "", mode + (limit ? `, ${limit} at most` : ""), String(fence), clock(acquireTime), clock(renewTime)];
    words.forEach((text, place) => say(row.cells[place], text));
    row.dataset.broken = broken ? "broken" : "";
    row.title = broken ? visible(`Broken: ${broken}`) : "";
    const button = row.querySelector("button");
    // Once broken it can only be removed at once, which takes more.
    if (button) button.disabled = Boolean(broken) && !this.may("admin", this.name);
  }

  ask(fence) {
    const holder = this.lease && this.lease.holders.find((one) => one.fence === fence);
    if (!holder) return;
    const { kind, name, may } = this;
    askToBreak({ kind, name, holder, may, done: () => this.soon() });
  }

  renderFacts() {
    const { lease } = this;
    const facts = [];
    const fact = (title, ...value) => facts.push(make("dt", {}, title), make("dd", {}, ...value));
    if (lease) {
      fact("Highest fence", make("span", { class: "mono" }, String(lease.fence)));
      if (lease.state) fact("State", `${lease.state}, since ${clock(lease.stateSince)}`);
      if (lease.last) fact("Last holder", `${lease.last.owner}: ${ENDINGS[lease.last.how]} at ${clock(lease.last.at)}`);
      for (const { owner, broken } of lease.holders) if (broken) fact("Broken", `${owner}: ${broken}`);
      if (lease.reserved) fact("Reserved", "for somebody in line");
    }
    fact("Watched since", clock(this.past.since));
    this.facts.replaceChildren(...facts);
  }

  // What changes by itself: bars, and the line that says how it stands.
  times() {
    const { lease } = this;
    if (!this.past) return;
    if (!lease) {
      say(this.standing, "Nothing is known of this name.");
      return;
    }
    for (const holder of lease.holders) {
      const row = this.holders.get(holder.fence);
      const remaining = this.left(holder);
      const [bar, text] = row.cells[6].children;
      bar.firstChild.style.transform = `scaleX(${Math.min(1, Math.max(0, (remaining - 1000) / holder.ttl)).toFixed(4)})`;
      say(text, left(remaining));
    }
    const [first] = lease.holders;
    const others = lease.holders.length - 1;
    const line = lease.waiters ? `, ${several(lease.waiters, "waits", "wait")} in line` : "";
    this.standing.dataset.standing = first ? (first.broken ? "broken" : "held") : "free";
    const held = () => `${first.broken ? "Broken, and in the way of others" : "Held"} by ${first.owner}${others > 0 ? ` and ${several(others, "other", "others")}` : ""}`;
    say(this.standing, (first ? held() : "Free") + line);
  }

  draw() {
    if (!this.past || this.name === null) return;
    const now = this.past.now + (performance.now() - this.loaded);
    drawTimeline(this.svg, { ...this.past, now }, this.window);
  }
}
