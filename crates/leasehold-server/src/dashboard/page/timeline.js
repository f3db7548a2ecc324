// Who held a lease, drawn: a bar for each, as long as it lasted, in the colour of its end.

import { ENDINGS, clock, draw, span } from "./words.js";

const LANE = 28;
const AXIS = 22;
// The room that the last mark's text needs before that of now.
const NOW = 90;
// Spans between marks on the axis, in milliseconds.
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800].map((one) => one * 1000);

// What the record says beside what the service has seen: who holds it now, and how the last one ended.
export const together = ({ tenures, since, time }, lease) => {
  const all = new Map();
  const add = (one) => all.set(one.fence, { ...all.get(one.fence), ...one });
  const read = (text) => (text ? Date.parse(text) : null);
  for (const { fence, owner, mode, from, until, how } of tenures) {
    add({ fence, owner, mode, from: read(from), until: read(until), how: until ? how || "unknown" : null });
  }
  const last = lease && lease.last;
  if (last) {
    const known = all.get(last.fence);
    if (!known) add({ fence: last.fence, owner: last.owner, from: null, until: read(last.at), how: last.how });
    else if (!known.until) add({ fence: last.fence, until: read(last.at), how: last.how });
  }
  const holders = lease ? lease.holders : [];
  for (const { fence, owner, mode, acquireTime, expireTime, broken } of holders) {
    const known = all.get(fence);
    const until = known ? known.until : null;
    const how = until ? known.how : broken ? "broken" : "holding";
    add({ fence, owner, mode, from: read(acquireTime), until, how, expires: read(expireTime), broken });
  }
  const found = [...all.values()].sort((one, other) => one.fence - other.fence);
  found.forEach((one, index) => {
    // Its end was not seen. It came before the next one's beginning, if that one was alone.
    if (one.how) return;
    const next = found[index + 1];
    one.until = next ? next.from : read(time);
    one.how = "unknown";
  });
  return { tenures: found, since: read(since), now: read(time) };
};

// A lane for each, so that those who hold together are drawn below each other.
const inLanes = (tenures) => {
  const ends = [];
  return tenures.map((one) => {
    const until = one.until || Infinity;
    let lane = ends.findIndex((end) => end <= (one.from || 0) + 1);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = until;
    return { one, lane };
  });
};

export const describe = (one, now) => {
  const until = one.until || now;
  const lasted = one.from === null ? "" : ` for ${span(until - one.from)}`;
  const from = one.from === null ? "" : ` from ${clock(one.from)}`;
  const end = ENDINGS[one.how] + (one.until ? ` at ${clock(one.until)}` : "");
  return `${one.owner}${from}${lasted}: ${end}. Fence ${one.fence}.`;
};

const axis = (start, end, place, height) => {
  const step = STEPS.find((one) => (end - start) / one <= 8) || (end - start) / 8;
  const marks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) {
    const x = place(at);
    marks.push(draw("line", { x1: x, x2: x, y1: 0, y2: height, class: "mark" }));
    if (x < place(end) - NOW) marks.push(draw("text", { x: x + 4, y: height + 15, class: "tick" }, clock(at).slice(-8)));
  }
  marks.push(draw("text", { x: place(end), y: height + 15, class: "tick now" }, "now"));
  return marks;
};

const bar = (one, lane, place, width, now) => {
  const x = Math.max(0, place(one.from === null ? -Infinity : one.from));
  const right = Math.min(width, place(one.until || now));
  const long = Math.max(3, right - x);
  const y = lane * LANE + 4;
  const parts = [draw("rect", { x, y, width: long, height: LANE - 8, rx: 3, class: "tenure" })];
  if (one.broken && one.expires > now) {
    const rest = Math.max(3, Math.min(width, place(Math.min(one.expires, now))) - right);
    parts.push(draw("rect", { x: right, y, width: rest, height: LANE - 8, rx: 3, class: "behind" }));
  }
  const room = Math.floor((long - 12) / 7);
  if (room >= 3) {
    const text = one.owner.length > room ? `${one.owner.slice(0, room - 1)}…` : one.owner;
    parts.push(draw("text", { x: x + 6, y: y + 14, class: "who" }, text));
  }
  const group = draw("g", { "data-how": one.how, "data-fence": one.fence }, draw("title", {}, describe(one, now)));
  group.append(...parts);
  return group;
};

// Draws them into an SVG element, which is as wide as it is now: the last `window` milliseconds, or all that is known.
export const drawTimeline = (svg, { tenures, since, now }, window) => {
  const width = Math.max(200, svg.clientWidth);
  const firsts = tenures.map((one) => one.from || one.until).filter(Boolean);
  const earliest = Math.max(Math.min(...firsts, now - 1000), window ? now - window : -Infinity);
  const seen = tenures.filter((one) => (one.until || now) >= earliest);
  const start = earliest - (now - earliest) * 0.02;
  const place = (at) => (at === -Infinity ? 0 : ((at - start) / (now - start)) * width);
  const lanes = inLanes(seen);
  const height = Math.max(1, ...lanes.map(({ lane }) => lane + 1)) * LANE;
  svg.setAttribute("height", height + AXIS);
  svg.setAttribute("viewBox", `0 0 ${width} ${height + AXIS}`);
  const parts = axis(start, now, place, height);
  if (since > start) {
    const x = place(since);
    parts.push(draw("rect", { x: 0, y: 0, width: x, height, class: "before" }, draw("title", {}, "The service had not started")));
  }
  parts.push(...lanes.map(({ one, lane }) => bar(one, lane, place, width, now)));
  svg.replaceChildren(...parts);
  const holding = seen.filter((one) => one.how === "holding").length;
  svg.setAttribute("aria-label", `Timeline of ${seen.length} who held it, ${holding} of them now. The list below has the same.`);
};
