// The timeline of a lease: a bar for each hold period, coloured by how it ended.

import { ENDINGS, formatClock, formatDuration, formatFullTime, makeSvg } from "./dom.js";

const LANE_HEIGHT = 28;
const AXIS_HEIGHT = 22;
// The width of the label "now" and the label before it, in pixels.
const NOW_WIDTH = 90;
// Possible distances between marks on the axis, in milliseconds.
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800].map((seconds) => seconds * 1000);

// Merges the service's history with the record, which contains the present holders and the end of the last one.
export const mergeHistory = ({ tenures, since, time }, lease) => {
  const byFence = new Map();
  const add = (period) => byFence.set(period.fence, { ...byFence.get(period.fence), ...period });
  const parse = (text) => (text ? Date.parse(text) : null);
  for (const { fence, owner, mode, from, until, how } of tenures) {
    add({ fence, owner, mode, from: parse(from), until: parse(until), how: until ? how || "unknown" : null });
  }
  const last = lease && lease.last;
  if (last) {
    const known = byFence.get(last.fence);
    if (!known) add({ fence: last.fence, owner: last.owner, from: null, until: parse(last.at), how: last.how });
    else if (!known.until) add({ fence: last.fence, until: parse(last.at), how: last.how });
  }
  const holders = lease ? lease.holders : [];
  for (const { fence, owner, mode, acquireTime, expireTime, broken } of holders) {
    const known = byFence.get(fence);
    const until = known ? known.until : null;
    const how = until ? known.how : broken ? "broken" : "holding";
    add({ fence, owner, mode, from: parse(acquireTime), until, how, expires: parse(expireTime), broken });
  }
  const periods = [...byFence.values()].sort((period, other) => period.fence - other.fence);
  periods.forEach((period, index) => {
    // It has ended, but the service does not know when: at the latest when the next one began.
    if (period.how) return;
    const next = periods[index + 1];
    period.until = next ? next.from : parse(time);
    period.how = "unknown";
  });
  return { periods, since: parse(since), now: parse(time) };
};

// Assigns a lane to each hold period, so that concurrent ones do not overlap.
const assignLanes = (periods) => {
  const ends = [];
  return periods.map((period) => {
    const until = period.until || Infinity;
    let lane = ends.findIndex((end) => end <= (period.from || 0) + 1);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = until;
    return { period, lane };
  });
};

// Describes a hold period, with times formatted by `format`.
export const describe = (period, now, format) => {
  const until = period.until || now;
  const duration = period.from === null ? "" : ` for ${formatDuration(until - period.from)}`;
  const from = period.from === null ? "" : ` from ${format(period.from)}`;
  const end = ENDINGS[period.how] + (period.until ? ` at ${format(period.until)}` : "");
  return `${period.owner}${from}${duration}: ${end}. Fence ${period.fence}.`;
};

const drawAxis = (start, end, xOf, height) => {
  const step = STEPS.find((step) => (end - start) / step <= 8) || (end - start) / 8;
  const marks = [];
  for (let time = Math.ceil(start / step) * step; time <= end; time += step) {
    const x = xOf(time);
    marks.push(makeSvg("line", { x1: x, x2: x, y1: 0, y2: height, class: "mark" }));
    if (x < xOf(end) - NOW_WIDTH) marks.push(makeSvg("text", { x: x + 4, y: height + 15, class: "tick" }, formatClock(time)));
  }
  marks.push(makeSvg("text", { x: xOf(end), y: height + 15, class: "tick now" }, "now"));
  return marks;
};

const drawBar = (period, lane, xOf, width, now) => {
  const x = Math.max(0, xOf(period.from === null ? -Infinity : period.from));
  const right = Math.min(width, xOf(period.until || now));
  const length = Math.max(3, right - x);
  const y = lane * LANE_HEIGHT + 4;
  const parts = [makeSvg("rect", { x, y, width: length, height: LANE_HEIGHT - 8, rx: 3, class: "period" })];
  if (period.broken && period.expires > now) {
    const reserved = Math.max(3, Math.min(width, xOf(Math.min(period.expires, now))) - right);
    parts.push(makeSvg("rect", { x: right, y, width: reserved, height: LANE_HEIGHT - 8, rx: 3, class: "reserved" }));
  }
  const characters = Math.floor((length - 12) / 7);
  if (characters >= 3) {
    const text = period.owner.length > characters ? `${period.owner.slice(0, characters - 1)}…` : period.owner;
    parts.push(makeSvg("text", { x: x + 6, y: y + 14, class: "owner" }, text));
  }
  const group = makeSvg("g", { "data-how": period.how, "data-fence": period.fence }, makeSvg("title", {}, describe(period, now, formatFullTime)));
  group.append(...parts);
  return group;
};

// Draws the hold periods into an SVG element at its present width: those of the last `window` milliseconds, or all.
export const drawTimeline = (svg, { periods, since, now }, window) => {
  const width = Math.max(200, svg.clientWidth);
  const times = periods.map((period) => period.from || period.until).filter(Boolean);
  const earliest = Math.max(Math.min(...times, now - 1000), window ? now - window : -Infinity);
  const visible = periods.filter((period) => (period.until || now) >= earliest);
  const start = earliest - (now - earliest) * 0.02;
  const xOf = (time) => (time === -Infinity ? 0 : ((time - start) / (now - start)) * width);
  const lanes = assignLanes(visible);
  const height = Math.max(1, ...lanes.map(({ lane }) => lane + 1)) * LANE_HEIGHT;
  svg.setAttribute("height", height + AXIS_HEIGHT);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + AXIS_HEIGHT}`);
  const parts = drawAxis(start, now, xOf, height);
  if (since > start) {
    const x = xOf(since);
    parts.push(makeSvg("rect", { x: 0, y: 0, width: x, height, class: "before" }, makeSvg("title", {}, "The service had not started")));
  }
  parts.push(...lanes.map(({ period, lane }) => drawBar(period, lane, xOf, width, now)));
  svg.replaceChildren(...parts);
  const holding = visible.filter((period) => period.how === "holding").length;
  svg.setAttribute("aria-label", `Timeline of ${visible.length} hold periods, ${holding} not ended. The list below contains the same.`);
};
