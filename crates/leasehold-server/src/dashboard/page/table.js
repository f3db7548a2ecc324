// The table of leases. Only visible rows are in the document; spacers above and below take the room of the others.

import { isExpiring, timeHeld, timeLeft } from "./row.js";
import { ENDINGS, escapeHidden, find, formatCount, formatFullTime, formatTime, formatTimeHeld, formatTimeLeft, make, plural, setText } from "./dom.js";

// The height of a row, as in the style sheet.
const ROW_HEIGHT = 30;
// How many rows are drawn above and below the visible ones.
const OVERSCAN = 12;
// The next page is loaded when fewer rows than this follow.
const MIN_ROWS_BELOW = 200;

const COLUMNS = ["name", "state", "owner", "mode", "left", "held", "waiters", "fence", "body"];

export const address = (kind, name) => `#/${kind}/${encodeURIComponent(name)}`;

const makeSpacer = () => make("tr", { class: "spacer", "aria-hidden": "true" }, make("td"));

export class Table {
  // `showError` gets errors of loading. `onSort` gets the column of which the header was clicked.
  constructor({ showError, onSort }) {
    this.showError = showError;
    this.rows = null;
    this.scroll = find("scroll");
    this.table = find("leases");
    this.body = this.table.tBodies[0];
    this.above = makeSpacer();
    this.below = makeSpacer();
    this.body.append(this.above, this.below);
    this.elements = new Map();
    // The index of the row that has, or last had, the keyboard focus.
    this.current = 0;
    this.isScheduled = false;
    this.scroll.addEventListener("scroll", () => this.scheduleDraw(), { passive: true });
    this.headers = new Map([...this.table.tHead.rows[0].cells].map((cell) => [cell.className, cell]));
    for (const [column, cell] of this.headers) cell.firstChild.addEventListener("click", () => onSort(column));
    this.body.addEventListener("keydown", (event) => this.onKeyDown(event));
    this.body.addEventListener("focusin", (event) => this.onFocus(event));
    // A click anywhere in the row follows its link, unless the user selects text.
    this.body.addEventListener("click", ({ target }) => {
      const link = target.closest("tr").querySelector("a");
      if (link && target !== link && getSelection().isCollapsed) link.click();
    });
    new ResizeObserver(() => this.scheduleDraw()).observe(this.scroll);
  }

  // Replaces the shown rows.
  show(rows) {
    this.rows = rows;
    this.current = 0;
    this.removeExcept(new Map());
    this.scroll.scrollTop = 0;
    this.scheduleDraw();
  }

  hide() {
    this.rows = null;
  }

  // Draws in the browser's next frame. Several calls draw once.
  scheduleDraw() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      if (this.rows) this.draw();
    });
  }

  // Called once a second: updates the bars, and loads visible rows again.
  tick() {
    if (!this.rows || document.hidden) return;
    this.scheduleDraw();
    const shown = this.rows.shown();
    const [first, last] = this.visibleRange(shown.length);
    this.rows.refresh(shown.slice(first, last)).catch(this.showError);
  }

  // Returns how old the oldest of the visible rows is, in milliseconds.
  age() {
    if (!this.rows) return Infinity;
    const shown = this.rows.shown();
    return this.rows.age(shown.slice(...this.visibleRange(shown.length)));
  }

  visibleRange(length) {
    const top = Math.floor(this.scroll.scrollTop / ROW_HEIGHT);
    const rows = Math.ceil(this.scroll.clientHeight / ROW_HEIGHT);
    const first = Math.max(0, Math.min(length - rows, top) - OVERSCAN);
    return [first, Math.min(length, top + rows + OVERSCAN)];
  }

  draw() {
    const shown = this.rows.shown();
    const { kind } = this.rows.filter;
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    if (focused) this.followFocus(focused.closest("tr"), shown);
    const [first, last] = this.visibleRange(shown.length);
    this.current = Math.max(0, Math.min(this.current, shown.length - 1));
    this.showSort();
    this.table.setAttribute("aria-rowcount", this.rows.complete ? shown.length + 1 : -1);
    this.resizeSpacer(this.above, first);
    this.resizeSpacer(this.below, shown.length - last);
    const visible = shown.slice(first, last);
    const element = ({ name }) => this.elements.get(name) || this.create(kind, name);
    const kept = new Map(visible.map((row) => [row.name, element(row)]));
    // Before inserting, so that rows that stay are not moved: a moved row would lose the focus.
    this.removeExcept(kept);
    let next = this.above.nextSibling;
    visible.forEach((row, offset) => {
      const element = kept.get(row.name);
      if (element === next) next = next.nextSibling;
      else this.body.insertBefore(element, next);
      this.update(element, row, first + offset);
    });
    // A moved row has lost the focus.
    if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.showCount(shown.length);
    const isNearEnd = shown.length - last < MIN_ROWS_BELOW && !this.rows.complete;
    if (isNearEnd || this.rows.isSortPartial()) this.rows.more().catch(this.showError);
  }

  // Keeps the row with the keyboard focus where it is in the window when its place in the order changes.
  followFocus(element, shown) {
    const before = Number(element.getAttribute("aria-rowindex")) - 2;
    const isFocused = ({ name }) => this.elements.get(name) === element;
    if (shown[before] && isFocused(shown[before])) return;
    const index = shown.findIndex(isFocused);
    if (index < 0) return;
    this.scroll.scrollTop += (index - before) * ROW_HEIGHT;
    if (this.current === before) this.current = index;
  }

  titleOf(column) {
    return this.headers.get(column).textContent;
  }

  // Marks the column by which the table is sorted.
  showSort() {
    const { sort, filter } = this.rows;
    const { column, isDescending } = sort || (filter.state ? {} : { column: "name" });
    for (const [other, cell] of this.headers) {
      if (other === column) cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  // Removes all other rows. If one of them had the focus, the table gets it.
  removeExcept(kept) {
    for (const [name, element] of this.elements) {
      if (kept.get(name) === element) continue;
      const hadFocus = element.contains(document.activeElement);
      element.remove();
      if (hadFocus) this.scroll.focus({ preventScroll: true });
    }
    this.elements = kept;
  }

  resizeSpacer(element, rows) {
    element.hidden = rows <= 0;
    element.firstChild.style.height = `${rows * ROW_HEIGHT}px`;
  }

  create(kind, name) {
    const cells = COLUMNS.map((column) => make(column === "name" ? "th" : "td", { class: column }));
    cells[0].scope = "row";
    cells[0].append(make("a", { href: address(kind, name), title: name }, name));
    const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("i"));
    cells[1].append("", make("span", { class: "visually-hidden" }));
    cells[4].append(bar, make("span", { class: "time" }));
    return make("tr", {}, ...cells);
  }

  update(element, row, index) {
    const [name, state, owner, mode, time, held, waiters, fence, body] = element.cells;
    element.setAttribute("aria-rowindex", index + 2);
    name.firstChild.tabIndex = index === this.current ? 0 : -1;
    const holder = row.holders[0];
    const others = row.holders.length - 1;
    const isBroken = row.holders.some((holder) => holder.broken);
    let status = holder ? "held" : "free";
    if (isBroken) status = "broken";
    else if (holder && isExpiring(row)) status = "expiring";
    element.dataset.status = status;
    setText(state.firstChild, row.state || status);
    // For screen readers: the colour shows the same.
    setText(state.lastChild, row.state ? `, ${status}` : "");
    state.title = state.textContent;
    setText(owner, holder ? holder.owner + (others > 0 ? ` and ${plural(others, "other", "others")}` : "") : "");
    owner.title = row.holders.map((holder) => holder.owner).join(", ");
    setText(mode, holder ? holder.mode + (holder.limit ? ` ${row.holders.length}/${holder.limit}` : "") : "");
    this.updateTime(time, timeLeft(row), holder ? null : row.last);
    setText(held, holder ? formatTimeHeld(timeHeld(row)) : "");
    held.title = escapeHidden(row.holders.map(({ owner, acquireTime }) => `${owner} since ${formatFullTime(acquireTime)}`).join(", "));
    setText(waiters, row.waiters > 0 ? formatCount(row.waiters) : "");
    setText(fence, String(row.fence));
    setText(body, row.body);
    body.title = row.body;
  }

  // Shows the time left, or how the last holder's lease ended.
  updateTime(cell, time, last) {
    const [bar, text] = cell.children;
    bar.hidden = !time;
    const ended = last ? ENDINGS[last.how] || ENDINGS.ended : "";
    setText(text, time ? formatTimeLeft(time.left) : last ? `${ended} ${formatTime(last.at)}` : "");
    cell.title = last ? escapeHidden(`${last.owner}: ${ended} ${formatFullTime(last.at)}`) : "";
    if (!time) return;
    // The length in one second: the style sheet animates the bar until then.
    const part = Math.max(0, (time.left - 1000) / time.ttl);
    bar.firstChild.style.transform = `scaleX(${Math.min(1, part).toFixed(4)})`;
    bar.dataset.part = time.part.toFixed(3);
  }

  showCount(length) {
    const { rows } = this;
    const { kind, show, prefix, state } = rows.filter;
    const [singular, several] = kind === "gate" ? ["gate", "gates"] : ["lease", "leases"];
    setText(find("count"), plural(length, singular, several) + (rows.complete ? "" : rows.isSortPartial() ? " loaded, sorting" : " loaded"));
    const empty = find("empty");
    empty.hidden = length > 0 || !rows.complete;
    const isFiltered = show !== "all" || prefix || state;
    setText(empty, isFiltered ? `No ${several} match this filter.` : `There are no ${several} yet.`);
  }

  onFocus(event) {
    const element = event.target.closest("tr");
    const index = Number(element.getAttribute("aria-rowindex")) - 2;
    if (index === this.current) return;
    this.current = index;
    this.scheduleDraw();
  }

  onKeyDown(event) {
    const page = Math.max(1, Math.floor(this.scroll.clientHeight / ROW_HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const shown = this.rows.shown();
    this.focusRow(Math.max(0, Math.min(shown.length - 1, this.current + step)));
    if (event.key === "End" && !this.rows.complete) this.rows.more().catch(this.showError);
  }

  // Scrolls to a row and gives it the keyboard focus.
  focusRow(index) {
    const row = this.rows.shown()[index];
    if (!row) return;
    this.current = index;
    const header = this.table.tHead.offsetHeight;
    const { scroll } = this;
    const [top, bottom] = [index * ROW_HEIGHT, (index + 1) * ROW_HEIGHT + header];
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (bottom > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = bottom - scroll.clientHeight;
    this.draw();
    const element = this.elements.get(row.name);
    if (element) element.cells[0].firstChild.focus({ preventScroll: true });
  }
}
