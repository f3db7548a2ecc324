// The leases that the page knows of, in the order of the service. They are loaded page by page, changed by events, and
// looked at again while they are seen. Nothing is decided here: what an event or a page says is what is shown.

import { list } from "./api.js";

const LIMIT = 200;
const MOST = 1000;
// The most empty pages in a row that are asked for before the browser gets its turn.
const EMPTY = 20;
// A page that is seen is loaded again after so long; one that has changed in a way that events do not tell, sooner.
const OLD = 5000;
const STALE = 700;
// When a page was loaded of which events were missed.
const MISSED = -OLD;
// The most pages that are loaded again in one go: those that are seen may be far apart.
const AGAIN = 2;
// What is kept of a body: the lease's own page has all of it.
const BODY = 200;
// Holders are renewed when a third of their time is over. Whoever has less than a third left is late.
const LATE = 1 / 3;

const now = () => performance.now();

// Whether a text comes after another in the service's order, which is that of their bytes in UTF-8. Scripts compare halves
// of characters, and take emoji for smaller than some that are smaller.
const rank = (unit) => (unit >= 0xe000 ? unit - 0x800 : unit >= 0xd800 ? unit + 0x2000 : unit);

const isAfter = (one, other) => {
  const length = Math.min(one.length, other.length);
  for (let place = 0; place < length; place += 1) {
    const [unit, against] = [one.charCodeAt(place), other.charCodeAt(place)];
    if (unit !== against) return rank(unit) > rank(against);
  }
  return one.length > other.length;
};

const holderOf = (told, left) => ({
  fence: told.fence,
  owner: told.owner,
  mode: told.mode,
  limit: told.limit,
  ttl: told.ttl,
  acquireTime: told.acquireTime,
  broken: told.broken,
  ends: now() + left,
});

const rowOf = (lease) => ({
  name: lease.name,
  fence: lease.fence,
  state: lease.state || "",
  since: lease.stateSince || "",
  body: lease.body.slice(0, BODY),
  waiters: lease.waiters || 0,
  reserved: lease.reserved,
  holders: lease.holders.map((holder) => holderOf(holder, holder.left)),
  last: lease.last,
  touched: 0,
});

// How long the holder has that has least, in milliseconds, and what part of its ttl that is.
export const timeLeft = (row) => {
  let least = null;
  for (const holder of row.holders) {
    if (!least || holder.ends < least.ends) least = holder;
  }
  if (!least) return null;
  const left = Math.max(0, least.ends - now());
  return { left, ttl: least.ttl, part: Math.min(1, left / least.ttl) };
};

export const isExpiring = (row) => {
  const time = timeLeft(row);
  return time !== null && time.part < LATE;
};

export class Rows {
  // `filter` has kind, prefix, show and state; `changed` is called whenever there is something else to see.
  constructor(filter, changed) {
    this.filter = filter;
    this.changed = changed;
    this.all = [];
    this.names = new Map();
    // When names were removed by an event: a page that was asked for before does not bring them back.
    this.removed = new Map();
    // Where each page starts: the service's cursor, and the key of the row before.
    this.pages = [];
    this.next = null;
    this.complete = false;
    this.loading = null;
    this.refreshing = false;
  }

  // What is to be seen.
  shown() {
    return this.filter.show === "expiring" ? this.all.filter(isExpiring) : this.all;
  }

  // Loads the next page, if there is one. Called again meanwhile, it is the same call.
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
    for (let tries = 0; tries < EMPTY; tries += 1) {
      const last = this.all.at(-1);
      const page = { cursor: this.next, after: last ? this.key(last) : null, at: 0, stale: false };
      const before = this.all.length;
      const cursor = await this.load(page);
      this.pages.push(page);
      this.next = cursor;
      this.complete = cursor === null;
      if (this.complete || this.all.length > before) break;
    }
    this.changed();
  }

  // Everything may have changed: what is seen is loaded again at once, and the rest page by page.
  suspectAll() {
    for (const page of this.pages) page.at = MISSED;
  }

  // Loads again what lies between these rows and is no longer fresh, and one page of the rest if some were missed.
  async refresh(first, last) {
    if (this.refreshing) return;
    const old = (page) => now() - page.at > (page.stale ? STALE : OLD);
    const seen = this.between(first, last).filter(old).sort((one, other) => one.at - other.at);
    const wanted = new Set(seen.slice(0, AGAIN));
    const missed = this.pages.find((page) => page.at === MISSED);
    if (missed) wanted.add(missed);
    if (wanted.size === 0) return;
    this.refreshing = true;
    try {
      for (const page of wanted) {
        const cursor = await this.load(page);
        // The end may have come nearer.
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

  // The pages that these rows stand on.
  between(first, last) {
    if (!first || !last) return this.pages.slice(0, 1);
    const [from, to] = [this.key(first), this.key(last)];
    return this.pages.filter((page, index) => {
      const next = this.pages[index + 1];
      return (page.after === null || !isAfter(page.after, to)) && (!next || next.after === null || !isAfter(from, next.after));
    });
  }

  // Loads a page and puts it where it belongs. Returns where the next one starts.
  async load(page) {
    const { kind, prefix, show, state } = this.filter;
    const held = { held: true, expiring: true, free: false }[show];
    const sent = now();
    // Of those that are looked through for the few that expire, many at once.
    const limit = show === "expiring" ? MOST : LIMIT;
    const { leases, cursor } = await list({ kind, prefix, held, state, cursor: page.cursor, limit });
    page.at = sent;
    const there = leases.filter(({ name }) => !(this.removed.get(name) > sent));
    page.stale = there.length < leases.length;
    const fresh = there.map((lease) => {
      const before = this.names.get(lease.name);
      // An event that came while the page was on its way is newer than the page.
      if (!before || before.touched <= sent) return rowOf(lease);
      page.stale = true;
      return before;
    });
    const start = page.after === null ? 0 : this.placeAfter(page.after);
    let end = this.all.length;
    if (cursor !== null) end = leases.length > 0 ? Math.max(start, this.placeAfter(this.key(rowOf(leases.at(-1))))) : start;
    for (const row of this.all.slice(start, end)) this.names.delete(row.name);
    this.all.splice(start, end - start, ...fresh);
    for (const row of fresh) this.names.set(row.name, row);
    return cursor;
  }

  // Changes what an event tells of.
  apply(told) {
    if (told.kind !== this.filter.kind || !told.name.startsWith(this.filter.prefix)) return;
    let row = this.names.get(told.name);
    if (!row) {
      row = this.discover(told);
      if (!row) return;
    }
    row.touched = now();
    const others = row.holders.filter((holder) => holder.fence !== told.fence);
    switch (told.event) {
      case "granted":
      case "renewed": {
        const left = Date.parse(told.expireTime) - Date.parse(told.time);
        row.holders = told.mode === "exclusive" ? [] : others;
        row.holders.push(holderOf(told, Math.max(0, left)));
        row.fence = Math.max(row.fence, told.fence);
        break;
      }
      case "updated":
        row.state = told.state || "";
        this.suspect(row);
        break;
      case "purged":
        this.remove(row);
        break;
      default:
        row.holders = others;
        row.last = { fence: told.fence, owner: told.owner, how: told.event, at: told.time };
        // A broken holder may stay in the way.
        if (told.event === "broken") this.suspect(row);
    }
    if (!this.fits(row)) this.remove(row);
    this.changed();
  }

  // A name that was not there, if it belongs among those that are loaded.
  discover(told) {
    if (told.event === "purged" || this.pages.length === 0) return null;
    // Since when it is in its state is not told: the last page is loaded again.
    if (this.filter.state) {
      this.pages.at(-1).stale = true;
      return null;
    }
    const last = this.all.at(-1);
    if (!this.complete && (!last || isAfter(told.name, last.name))) return null;
    const row = rowOf({ name: told.name, fence: told.fence || 0, body: "", holders: [] });
    this.all.splice(this.placeAfter(this.key(row)), 0, row);
    this.names.set(row.name, row);
    this.suspect(row);
    return row;
  }

  fits(row) {
    const { show, state } = this.filter;
    if (state && row.state !== state) return false;
    if (show === "free") return row.holders.length === 0;
    return show === "all" || row.holders.length > 0;
  }

  remove(row) {
    if (!this.names.delete(row.name)) return;
    if (this.removed.size > MOST) this.removed.clear();
    this.removed.set(row.name, now());
    const place = this.placeAfter(this.key(row)) - 1;
    this.all.splice(this.all[place] === row ? place : this.all.indexOf(row), 1);
  }

  // Events do not tell everything about this row.
  suspect(row) {
    const key = this.key(row);
    const page = this.pages.findLast((page) => page.after === null || isAfter(key, page.after));
    if (page) page.stale = true;
  }

  // What rows are sorted by: by name, or those that are longest in their state first.
  key(row) {
    return this.filter.state ? `${row.since}\n${row.name}` : row.name;
  }

  // The place behind all rows up to this key.
  placeAfter(key) {
    let [low, high] = [0, this.all.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isAfter(this.key(this.all[middle]), key)) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
