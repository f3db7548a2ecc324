// How much there is to do, and was in the last hour: numbers, and a bar for each minute.

import { totals } from "./api.js";
import { clock, count, draw, find, make, say, span } from "./words.js";

const EVERY = 5000;
const MINUTES = 60;
const HEIGHT = 34;

const CHARTS = [
  { member: "grants", title: "Grants" },
  { member: "refusals", title: "Refused" },
  { member: "waits", title: "Waited in line" },
];

const number = (title, id) => make("div", { class: "number" }, make("span", { class: "label" }, title), make("b", { id }));

const chart = ({ member, title }) => {
  const bars = Array.from({ length: MINUTES }, (_, minute) =>
    draw("rect", { x: minute * 3, width: 2, y: HEIGHT, height: 0 }, draw("title")));
  const svg = draw("svg", { viewBox: `0 0 ${MINUTES * 3} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: member }, ...bars);
  return make("figure", { class: "chart", id: `chart-${member}` },
    make("figcaption", {}, make("span", { class: "label" }, title), make("b"), make("span", { class: "dim" })), svg);
};

const build = () => {
  find("totals").replaceChildren(
    number("Held", "total-held"),
    number("In line", "total-waiters"),
    ...CHARTS.map(chart),
  );
};

const show = ({ held, waiters, minutes, time }) => {
  say(find("total-held"), count(held));
  say(find("total-waiters"), count(waiters));
  const waited = minutes.reduce((sum, minute) => sum + minute.waited, 0);
  for (const { member, title } of CHARTS) {
    const figure = find(`chart-${member}`);
    const values = minutes.map((minute) => minute[member]);
    const sum = values.reduce((one, other) => one + other, 0);
    const most = Math.max(1, ...values);
    const [caption, svg] = figure.children;
    say(caption.children[1], count(sum));
    say(caption.children[2], member === "waits" && sum > 0 ? `in the last hour, ${span(waited / sum)} each` : "in the last hour");
    svg.setAttribute("aria-label", `${title} in the last hour: ${count(sum)}, ${count(Math.max(0, ...values))} in the busiest minute`);
    const missing = MINUTES - values.length;
    [...svg.children].forEach((bar, place) => {
      const value = values[place - missing] || 0;
      // One is seen beside a thousand.
      const height = value > 0 ? Math.max(1.5, (value / most) * HEIGHT) : 0;
      bar.setAttribute("height", height);
      bar.setAttribute("y", HEIGHT - height);
      const at = clock(Date.parse(time) - (MINUTES - 1 - place) * 60000).slice(-8, -3);
      say(bar.firstChild, `${at}: ${count(value)}`);
    });
  }
};

// Keeps them up to date for as long as they are shown. Whoever may not see all names sees none of this.
export class TotalsView {
  constructor() {
    this.timer = 0;
    this.on = false;
  }

  start() {
    if (this.on) return;
    build();
    this.load();
  }

  stop() {
    clearTimeout(this.timer);
    find("totals").hidden = true;
    this.on = false;
  }

  async load() {
    this.on = true;
    try {
      if (!document.hidden) {
        const told = await totals();
        if (!this.on) return;
        find("totals").hidden = false;
        show(told);
      }
    } catch (problem) {
      if (problem.status === 403 || problem.status === 401) {
        this.stop();
        return;
      }
    }
    if (this.on) this.timer = setTimeout(() => this.load(), EVERY);
  }
}
