// The loaded leases, in the order of the service or sorted. They are loaded page by page, updated by events, and loaded again while
// they are visible. They show what events and pages contain, and nothing is decided here.

import { list } from "./api.js";
import { duration, holderOf, isAfter, isExpiring, rowOf } from "./row.js";
import { SortedRows } from "./sort.js";

const PAGE_LIMIT = 200;
const MAX_PAGE_LIMIT = 1000;
const MAX_REMOVED = 1000;
// The maximum number of pages that one call loads until it finds a row.
const MAX_EMPTY_PAGES = 20;
// How old a visible page may become before it is loaded again; less if it changed in a way that events do not contain.
const MAX_AGE = 5000;
const MAX_STALE_AGE = 700;
// The load time of a page for which events were missed.
const MISSED = -MAX_AGE;
// The maximum number of visible pages that one refresh loads.
const MAX_REFRESHED_PAGES = 2;
// The maximum number of rows that are loaded to be sorted.
const MAX_SORTED = 100000;

const now = () => performance.now();

export class Rows {
  // `filter` has kind, prefix, show and state. `onChange` is called after each change.
  constructor(filter, onChange) {
    this.filter = filter;
    this.onChange = onChange;
    this.all = [];
    this.names = new Map();
    // When an event removed each name: a page that was requested before does not add it again.
    this.removed = new Map();
    // The start of each page: the service's cursor, and the key of the row before.
    this.pages = [];
    this.next = null;
    this.complete = false;
    this.loading = null;
    this.refreshing = false;
    // The order, or null for that of the service.
    this.sort = null;
    this.sorted = null;
  }

  // Returns the rows that match the filter, in the order to show them.
  shown() {
    const rows = this.sorted ? this.sorted.of(this.all) : this.all;
    return this.filter.show === "expiring" ? rows.filter(isExpiring) : rows;
  }

  setSort(sort) {
    this.sort = sort;
    this.sorted = sort && new SortedRows(sort);
    this.onChange();
  }

  // Whether the next page is required, however far the user has scrolled: any row can be the first of a sorted table.
  isSortPartial() {
    return this.sort !== null && !this.complete && this.all.length < MAX_SORTED;
  }

  changed() {
    if (this.sorted) this.sorted.isStale = true;
    this.onChange();
  }

  // Loads the next page, if there is one. Concurrent calls share one request.
  more() {
    if (this.complete) return Promise.resolve();
    if (!this.loading) {
      this.loading = this.loadNext().finally(() => {
        this.loading = null;
      });
    }
    return this.loading;
  }

  async loadNext() {
    for (let tries = 0; tries < MAX_EMPTY_PAGES; tries += 1) {
      const last = this.all.at(-1);
      const page = { cursor: this.next, after: last ? this.key(last) : null, limit: this.pageLimit(), sent: 0, stale: false };
      const before = this.all.length;
      const cursor = await this.load(page);
      this.pages.push(page);
      this.next = cursor;
      this.complete = cursor === null;
      if (this.complete || this.all.length > before) break;
    }
    this.changed();
  }

  // Few leases are expiring, so look for them in large pages. To be sorted, all pages are loaded.
  pageLimit() {
    return this.filter.show === "expiring" || this.sort ? MAX_PAGE_LIMIT : PAGE_LIMIT;
  }

  // Marks all pages after events were missed. Visible ones are loaded again at once, the others one by one.
  markAllMissed() {
    for (const page of this.pages) page.sent = MISSED;
  }

  // Loads the pages of these rows again if they are too old, and one other page for which events were missed.
  async refresh(rows) {
    if (this.refreshing) return;
    const isOld = (page) => now() - page.sent > (page.stale ? MAX_STALE_AGE : MAX_AGE);
    const visible = this.pagesOf(rows).filter(isOld).sort((page, other) => page.sent - other.sent);
    const refreshed = new Set(visible.slice(0, MAX_REFRESHED_PAGES));
    const missed = this.pages.find((page) => page.sent === MISSED);
    if (missed) refreshed.add(missed);
    if (refreshed.size === 0) return;
    this.refreshing = true;
    try {
      for (const page of refreshed) {
        const cursor = await this.load(page);
        // It may have become the last page.
        if (cursor === null) this.pages.splice(this.pages.indexOf(page) + 1);
        if (page === this.pages.at(-1)) {
          this.next = cursor;
          this.complete = cursor === null;
        }
      }
    } finally {
      this.refreshing = false;
    }
    this.changed();
  }

  // Returns the pages that contain these rows.
  pagesOf(rows) {
    if (rows.length === 0) return this.pages.slice(0, 1);
    return [...new Set(rows.map((row) => this.pageOf(this.key(row))))].filter(Boolean);
  }

  // Returns how long ago the oldest page of these rows was loaded, in milliseconds.
  age(rows) {
    return now() - Math.min(...this.pagesOf(rows).map((page) => (page.sent === MISSED ? -Infinity : page.sent)), now());
  }

  // Returns the page of a key.
  pageOf(key) {
    return this.pages.findLast((page) => page.after === null || isAfter(key, page.after));
  }

  // Loads a page and replaces its rows. Returns the cursor of the next page.
  async load(page) {
    const { kind, prefix, show, state } = this.filter;
    const held = { held: true, expiring: true, free: false }[show];
    const sent = now();
    const { leases, cursor } = await list({ kind, prefix, held, state, cursor: page.cursor, limit: page.limit });
    page.sent = sent;
    const present = leases.filter(({ name }) => !(this.removed.get(name) > sent));
    page.stale = present.length < leases.length;
    const loaded = present.map((lease) => {
      const before = this.names.get(lease.name);
      // An event that arrived after the request was sent is newer than the answer.
      if (!before || before.updated <= sent) return rowOf(lease);
      page.stale = true;
      return before;
    });
    const start = page.after === null ? 0 : this.indexAfter(page.after);
    let end = this.all.length;
    if (cursor !== null) end = leases.length > 0 ? Math.max(start, this.indexAfter(this.key(rowOf(leases.at(-1))))) : start;
    for (const row of this.all.slice(start, end)) this.names.delete(row.name);
    this.all.splice(start, end - start, ...loaded);
    for (const row of loaded) this.names.set(row.name, row);
    return cursor;
  }

  // Applies an event.
  apply(event) {
    if (event.kind !== this.filter.kind || !event.name.startsWith(this.filter.prefix)) return;
    let row = this.names.get(event.name);
    if (!row) {
      row = this.insert(event);
      if (!row) return;
    }
    row.updated = now();
    const others = row.holders.filter((holder) => holder.fence !== event.fence);
    switch (event.event) {
      case "granted":
      case "renewed": {
        row.holders = event.mode === "exclusive" ? [] : others;
        row.holders.push(holderOf(event, duration(event.time, event.expireTime), duration(event.acquireTime, event.time)));
        row.fence = Math.max(row.fence, event.fence);
        break;
      }
      case "updated":
        row.state = event.state || "";
        this.markStale(row);
        break;
      case "purged":
        this.remove(row);
        break;
      default:
        row.holders = others;
        row.last = { fence: event.fence, owner: event.owner, how: event.event, at: event.time };
        // The name may still be reserved for a broken holder.
        if (event.event === "broken") this.markStale(row);
    }
    if (!this.matches(row)) this.remove(row);
    this.changed();
  }

  // Inserts a row for a new name if it is within the loaded pages.
  insert(event) {
    if (event.event === "purged" || this.pages.length === 0) return null;
    // Rows are sorted by when they entered the state, which the event does not contain: load the last page again.
    if (this.filter.state) {
      this.pages.at(-1).stale = true;
      return null;
    }
    const last = this.all.at(-1);
    if (!this.complete && (!last || isAfter(event.name, last.name))) return null;
    const row = rowOf({ name: event.name, fence: event.fence || 0, body: "", holders: [] });
    this.all.splice(this.indexAfter(this.key(row)), 0, row);
    this.names.set(row.name, row);
    this.markStale(row);
    return row;
  }

  // Whether a row matches the filter.
  matches(row) {
    const { show, state } = this.filter;
    if (state && row.state !== state) return false;
    if (show === "free") return row.holders.length === 0;
    return show === "all" || row.holders.length > 0;
  }

  remove(row) {
    if (!this.names.delete(row.name)) return;
    if (this.removed.size > MAX_REMOVED) this.removed.clear();
    this.removed.set(row.name, now());
    const index = this.indexAfter(this.key(row)) - 1;
    this.all.splice(this.all[index] === row ? index : this.all.indexOf(row), 1);
  }

  // Marks the page of a row that changed in a way that events do not contain.
  markStale(row) {
    const page = this.pageOf(this.key(row));
    if (page) page.stale = true;
  }

  // Returns the sort key: the name, or when the row entered its state.
  key(row) {
    return this.filter.state ? `${row.since}\n${row.name}` : row.name;
  }

  // Returns the index behind all rows up to this key.
  indexAfter(key) {
    let [low, high] = [0, this.all.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isAfter(this.key(this.all[middle]), key)) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
