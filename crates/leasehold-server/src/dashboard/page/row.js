// A row of the table: a lease as an answer or an event described it, and what follows from the time since.

// How many characters of a body are kept. The view of the lease shows all of it.
const BODY_LENGTH = 200;
// Holders renew after a third of their ttl. One with less than a third left is late.
const LATE_PART = 1 / 3;

const now = () => performance.now();

// The service sorts by UTF-8 bytes, JavaScript by UTF-16 units. Moves surrogates above all other units, so that both
// orders agree.
const rank = (unit) => (unit >= 0xe000 ? unit - 0x800 : unit >= 0xd800 ? unit + 0x2000 : unit);

// Whether a text comes after another in the order of the service.
export const isAfter = (text, other) => {
  const length = Math.min(text.length, other.length);
  for (let index = 0; index < length; index += 1) {
    const [unit, otherUnit] = [text.charCodeAt(index), other.charCodeAt(index)];
    if (unit !== otherUnit) return rank(unit) > rank(otherUnit);
  }
  return text.length > other.length;
};

// `source` is a holder in an answer, or an event; `left` and `held` are durations by the clock of the store.
export const holderOf = (source, left, held) => ({
  fence: source.fence,
  owner: source.owner,
  mode: source.mode,
  limit: source.limit,
  ttl: source.ttl,
  acquireTime: source.acquireTime,
  broken: source.broken,
  expires: now() + left,
  acquired: now() - held,
});

// Returns the time between two times, in milliseconds.
export const duration = (from, until) => Math.max(0, Date.parse(until) - Date.parse(from));

export const rowOf = (lease) => ({
  name: lease.name,
  fence: lease.fence,
  state: lease.state || "",
  since: lease.stateSince || "",
  body: lease.body.slice(0, BODY_LENGTH),
  waiters: lease.waiters || 0,
  reserved: lease.reserved,
  holders: lease.holders.map((holder) => holderOf(holder, holder.left, duration(holder.acquireTime, holder.expireTime) - holder.left)),
  last: lease.last,
  updated: 0,
});

// Returns the remaining time of the holder that expires first, in milliseconds and as a part of its ttl.
export const timeLeft = (row) => {
  let first = null;
  for (const holder of row.holders) {
    if (!first || holder.expires < first.expires) first = holder;
  }
  if (!first) return null;
  const left = Math.max(0, first.expires - now());
  return { left, expires: first.expires, ttl: first.ttl, part: Math.min(1, left / first.ttl) };
};

// Returns for how long the first of the present holders has held the lease, in milliseconds.
export const timeHeld = (row) => {
  if (row.holders.length === 0) return null;
  return Math.max(0, now() - Math.min(...row.holders.map((holder) => holder.acquired)));
};

export const isExpiring = (row) => {
  const time = timeLeft(row);
  return time !== null && time.part < LATE_PART;
};
