// The table of leases. However many there are, only those rows are in the document that can be seen, with a space above
// and below for the others.

import { isExpiring, timeLeft } from "./rows.js";
import { count, find, left, make, say, several } from "./words.js";

// As in the style sheet.
const HEIGHT = 30;
// Rows beyond what is seen, either way.
const BEYOND = 12;
// More is loaded when fewer rows than this follow.
const AHEAD = 200;

const COLUMNS = ["name", "state", "owner", "mode", "left", "waiters", "fence", "body"];

export const address = (kind, name) => `#/${kind}/${encodeURIComponent(name)}`;

const space = () => make("tr", { class: "space", "aria-hidden": "true" }, make("td"));

export class Table {
  // `trouble` is told what went wrong while loading.
  constructor(trouble) {
    this.trouble = trouble;
    this.rows = null;
    this.scroll = find("scroll");
    this.table = find("leases");
    this.body = this.table.tBodies[0];
    this.above = space();
    this.below = space();
    this.body.append(this.above, this.below);
    this.elements = new Map();
    // The row that the keyboard is on.
    this.current = 0;
    this.wanted = false;
    this.scroll.addEventListener("scroll", () => this.later(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("focusin", (event) => this.focused(event));
    // The whole row is the link, unless somebody marks what is in it.
    this.body.addEventListener("click", ({ target }) => {
      const link = target.closest("tr").querySelector("a");
      if (link && target !== link && getSelection().isCollapsed) link.click();
    });
    new ResizeObserver(() => this.later()).observe(this.scroll);
  }

  // Shows these from now on.
  show(rows) {
    this.rows = rows;
    this.current = 0;
    this.drop(new Map());
    this.scroll.scrollTop = 0;
    this.later();
  }

  hide() {
    this.rows = null;
  }

  // Draws with the browser's next frame, however often it is asked to.
  later() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => {
      this.wanted = false;
      if (this.rows) this.draw();
    });
  }

  // Once a second: bars shrink, and what is seen is looked at again.
  tick() {
    if (!this.rows || document.hidden) return;
    this.later();
    const shown = this.rows.shown();
    const [first, last] = this.seen(shown.length);
    this.rows.refresh(shown[first], shown[Math.max(first, last - 1)]).catch(this.trouble);
  }

  seen(length) {
    const top = Math.floor(this.scroll.scrollTop / HEIGHT);
    const rows = Math.ceil(this.scroll.clientHeight / HEIGHT);
    const first = Math.max(0, Math.min(length - rows, top) - BEYOND);
    return [first, Math.min(length, top + rows + BEYOND)];
  }

  draw() {
    const shown = this.rows.shown();
    const { kind } = this.rows.filter;
    const [first, last] = this.seen(shown.length);
    this.current = Math.max(0, Math.min(this.current, shown.length - 1));
    this.table.setAttribute("aria-rowcount", this.rows.complete ? shown.length + 1 : -1);
    this.stretch(this.above, first);
    this.stretch(this.below, shown.length - last);
    const seen = shown.slice(first, last);
    const element = ({ name }) => this.elements.get(name) || this.create(kind, name);
    const kept = new Map(seen.map((row) => [row.name, element(row)]));
    // First, so that what stays is not moved: the keyboard may be there.
    this.drop(kept);
    let place = this.above.nextSibling;
    seen.forEach((row, offset) => {
      const element = kept.get(row.name);
      if (element === place) place = place.nextSibling;
      else this.body.insertBefore(element, place);
      this.update(element, row, first + offset);
    });
    this.report(shown.length);
    const more = shown.length - last < AHEAD && !this.rows.complete;
    if (more) this.rows.more().catch(this.trouble);
  }

  // Takes away what is seen no more. If the keyboard was there, it stays with the table.
  drop(kept) {
    for (const [name, element] of this.elements) {
      if (kept.get(name) === element) continue;
      const lost = element.contains(document.activeElement);
      element.remove();
      if (lost) this.scroll.focus({ preventScroll: true });
    }
    this.elements = kept;
  }

  stretch(element, rows) {
    element.hidden = rows <= 0;
    element.firstChild.style.height = `${rows * HEIGHT}px`;
  }

  create(kind, name) {
    const cells = COLUMNS.map((column) => make(column === "name" ? "th" : "td", { class: column }));
    cells[0].scope = "row";
    cells[0].append(make("a", { href: address(kind, name), title: name }, name));
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
    cells[1].append("", make("span", { class: "unseen" }));
    cells[4].append(bar, make("span", { class: "time" }));
    return make("tr", {}, ...cells);
  }

  update(element, row, index) {
    const [name, state, owner, mode, time, waiters, fence, body] = element.cells;
    element.setAttribute("aria-rowindex", index + 2);
    name.firstChild.tabIndex = index === this.current ? 0 : -1;
    const holder = row.holders[0];
    const others = row.holders.length - 1;
    const broken = row.holders.some((one) => one.broken);
    let standing = holder ? "held" : "free";
    if (broken) standing = "broken";
    else if (holder && isExpiring(row)) standing = "expiring";
    element.dataset.standing = standing;
    say(state.firstChild, row.state || standing);
    // What others see by the colour.
    say(state.lastChild, row.state ? `, ${standing}` : "");
    state.title = state.textContent;
    say(owner, holder ? holder.owner + (others > 0 ? ` and ${several(others, "other", "others")}` : "") : "");
    owner.title = row.holders.map((one) => one.owner).join(", ");
    say(mode, holder ? holder.mode + (holder.limit ? ` ${row.holders.length}/${holder.limit}` : "") : "");
    this.time(time, timeLeft(row));
    say(waiters, row.waiters > 0 ? count(row.waiters) : "");
    say(fence, String(row.fence));
    say(body, row.body);
    body.title = row.body;
  }

  time(cell, time) {
    const [bar, text] = cell.children;
    bar.hidden = !time;
    say(text, time ? left(time.left) : "");
    if (!time) return;
    // Where it is in a second: the style sheet moves it there.
    const part = Math.max(0, (time.left - 1000) / time.ttl);
    bar.firstChild.style.transform = `scaleX(${Math.min(1, part).toFixed(4)})`;
    bar.dataset.part = time.part.toFixed(3);
  }

  report(length) {
    const { rows } = this;
    const { kind, show, prefix, state } = rows.filter;
    const what = kind === "gate" ? ["gate", "gates"] : ["lease", "leases"];
    say(find("count"), several(length, ...what) + (rows.complete ? "" : " so far"));
    const empty = find("empty");
    empty.hidden = length > 0 || !rows.complete;
    const chosen = show !== "all" || prefix || state;
    say(empty, chosen ? `No ${what[1]} like that.` : `There are no ${what[1]} yet.`);
  }

  focused(event) {
    const element = event.target.closest("tr");
    const index = Number(element.getAttribute("aria-rowindex")) - 2;
    if (index === this.current) return;
    this.current = index;
    this.later();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const shown = this.rows.shown();
    this.go(Math.max(0, Math.min(shown.length - 1, this.current + step)));
    // Further down there may be more.
    if (event.key === "End" && !this.rows.complete) this.rows.more().catch(this.trouble);
  }

  // Puts the keyboard on a row.
  go(index) {
    const row = this.rows.shown()[index];
    if (!row) return;
    this.current = index;
    const head = this.table.tHead.offsetHeight;
    const { scroll } = this;
    const [top, bottom] = [index * HEIGHT, (index + 1) * HEIGHT + head];
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (bottom > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = bottom - scroll.clientHeight;
    this.draw();
    const element = this.elements.get(row.name);
    if (element) element.cells[0].firstChild.focus({ preventScroll: true });
  }
}
