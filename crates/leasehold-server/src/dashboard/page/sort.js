// Sorts the loaded rows by a column. The service sorts by name only, or by when rows entered a state.

import { isAfter, timeHeld, timeLeft } from "./row.js";

const status = (row) => {
  if (row.holders.length === 0) return "free";
  return row.holders.some((holder) => holder.broken) ? "broken" : "held";
};

// The value of a row in each column; null if the cell is empty.
const VALUES = {
  name: (row) => row.name,
  state: (row) => row.state || status(row),
  owner: (row) => (row.holders[0] ? row.holders[0].owner : null),
  mode: (row) => (row.holders[0] ? row.holders[0].mode : null),
  left: (row) => {
    const time = timeLeft(row);
    return time && time.expires;
  },
  held: timeHeld,
  waiters: (row) => row.waiters || null,
  fence: (row) => row.fence,
  body: (row) => row.body || null,
};

// Sorts rows that have an empty cell in the column. Free leases are behind held ones, the last that ended first.
const VALUES_BEHIND = {
  left: (row) => (row.holders.length === 0 && row.last ? -Date.parse(row.last.at) : null),
};

// Columns whose largest values are looked for, so that the first click on them sorts in descending order.
const LARGEST_FIRST = ["held", "waiters", "fence"];

// Sorting takes at most this part of the time: the order of many rows is updated less often.
const SORT_PART = 0.1;

const compare = (value, other) => {
  if (typeof value === "number") return value - other;
  return isAfter(value, other) ? 1 : -1;
};

// Returns the order in a parameter: `owner`, or `-owner` for descending; null for the order of the service. `isByName` is
// whether that one is by name.
export const parseSort = (text, isByName) => {
  const isDescending = text.startsWith("-");
  const column = isDescending ? text.slice(1) : text;
  if (isByName && column === "name" && !isDescending) return null;
  return Object.hasOwn(VALUES, column) ? { column, isDescending } : null;
};

export const formatSort = (sort) => (sort ? (sort.isDescending ? "-" : "") + sort.column : "");

// Returns the order after a click on a column: first one direction, then the other, then the order of the service.
export const nextSort = (sort, column, isByName) => {
  const present = sort || (isByName ? { column: "name", isDescending: false } : null);
  const first = LARGEST_FIRST.includes(column);
  if (!present || present.column !== column) return { column, isDescending: first };
  return present.isDescending === first ? { column, isDescending: !first } : null;
};

// Returns the rows in another order. Rows with the same value stay in the order of the service, empty cells are last.
const sortRows = (rows, { column, isDescending }) => {
  const sign = isDescending ? -1 : 1;
  const sortBy = (values, some) => {
    const keyed = some.map((row) => ({ row, value: values(row) }));
    keyed.sort(({ value }, { value: other }) => {
      if (value === other) return 0;
      if (value === null) return 1;
      return other === null ? -1 : sign * compare(value, other);
    });
    return keyed.map(({ row }) => row);
  };
  const sorted = sortBy(VALUES[column], rows);
  const behind = VALUES_BEHIND[column];
  if (!behind) return sorted;
  const empty = sorted.findIndex((row) => VALUES[column](row) === null);
  return empty < 0 ? sorted : [...sorted.slice(0, empty), ...sortBy(behind, sorted.slice(empty))];
};

// Rows in one order, sorted again after changes.
export class SortedRows {
  constructor(sort) {
    this.sort = sort;
    this.rows = [];
    this.isStale = true;
    this.earliest = 0;
  }

  of(all) {
    const started = performance.now();
    if (!this.isStale || started < this.earliest) return this.rows;
    this.rows = sortRows(all, this.sort);
    this.isStale = false;
    const ended = performance.now();
    this.earliest = ended + (ended - started) / SORT_PART;
    return this.rows;
  }
}
