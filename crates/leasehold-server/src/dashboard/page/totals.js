// The load of the service, now and in the last hour: numbers, and a bar for each minute.

import { totals } from "./api.js";
import { find, formatCount, formatDuration, formatFullTime, make, makeSvg, setText } from "./dom.js";

const LOAD_INTERVAL = 5000;
const MINUTES = 60;
const HEIGHT = 34;

const CHARTS = [
  { member: "grants", title: "Grants" },
  { member: "refusals", title: "Refused" },
  { member: "waits", title: "Waits" },
];

const makeNumber = (title, id) => make("div", { class: "number" }, make("span", { class: "label" }, title), make("b", { id }));

const makeChart = ({ member, title }) => {
  const bars = Array.from({ length: MINUTES }, (_, minute) =>
    makeSvg("rect", { x: minute * 3, width: 2, y: HEIGHT, height: 0 }, makeSvg("title")));
  const svg = makeSvg("svg", { viewBox: `0 0 ${MINUTES * 3} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: member }, ...bars);
  return make("figure", { class: "chart", id: `chart-${member}` },
    make("figcaption", {}, make("span", { class: "label" }, title), make("b"), make("span", { class: "dim" })), svg);
};

const build = () => {
  find("totals").replaceChildren(
    makeNumber("Held", "total-held"),
    makeNumber("Waiters", "total-waiters"),
    ...CHARTS.map(makeChart),
  );
};

const show = ({ held, waiters, minutes, time }) => {
  setText(find("total-held"), formatCount(held));
  setText(find("total-waiters"), formatCount(waiters));
  const waited = minutes.reduce((sum, minute) => sum + minute.waited, 0);
  for (const { member, title } of CHARTS) {
    const figure = find(`chart-${member}`);
    const values = minutes.map((minute) => minute[member]);
    const sum = values.reduce((total, value) => total + value, 0);
    const max = Math.max(1, ...values);
    const [caption, svg] = figure.children;
    setText(caption.children[1], formatCount(sum));
    setText(caption.children[2], member === "waits" && sum > 0 ? `in the last hour, ${formatDuration(waited / sum)} each` : "in the last hour");
    svg.setAttribute("aria-label", `${title} in the last hour: ${formatCount(sum)}, ${formatCount(Math.max(0, ...values))} in the busiest minute`);
    const missing = MINUTES - values.length;
    [...svg.children].forEach((bar, index) => {
      const value = values[index - missing] || 0;
      // A minimum height, so that small values are visible beside large ones.
      const height = value > 0 ? Math.max(1.5, (value / max) * HEIGHT) : 0;
      bar.setAttribute("height", height);
      bar.setAttribute("y", HEIGHT - height);
      const at = formatFullTime(Date.parse(time) - (MINUTES - 1 - index) * 60000);
      setText(bar.firstChild, `${at}: ${formatCount(value)}`);
    });
  }
};

// Updates the totals while they are shown. They are hidden from users who may not read all names.
export class TotalsView {
  constructor() {
    this.timer = 0;
    this.isOn = false;
  }

  start() {
    if (this.isOn) return;
    build();
    this.load();
  }

  stop() {
    clearTimeout(this.timer);
    find("totals").hidden = true;
    this.isOn = false;
  }

  async load() {
    this.isOn = true;
    try {
      if (!document.hidden) {
        const loaded = await totals();
        if (!this.isOn) return;
        find("totals").hidden = false;
        show(loaded);
      }
    } catch (problem) {
      if (problem.status === 403 || problem.status === 401) {
        this.stop();
        return;
      }
    }
    if (this.isOn) this.timer = setTimeout(() => this.load(), LOAD_INTERVAL);
  }
}
