// A line chart of the last minutes, drawn as SVG: one scale, filled below the line.

import { h, svg } from "./dom.js";
import { speed } from "./format.js";

const WIDTH = 600;
const HEIGHT = 120;
const STEPS = [1, 2, 5];

/** A chart of one series; `show(values, seconds)` draws values that are a second apart, the latest at the right. */
export class Chart {
  constructor(title, kind) {
    this.title = title;
    this.area = svg("path", { class: "area" });
    this.line = svg("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: `chart ${kind}` },
      [0.25, 0.5, 0.75].map((at) => svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: at * HEIGHT, y2: at * HEIGHT })), this.area, this.line);
    this.top = h("span.chart-top");
    this.span = h("span");
    this.node = h("div.chart-box", h("p.chart-title", h("span", title), this.now = h("b")), h("div.chart-frame", this.top, this.drawing),
      h("p.chart-feet", this.span, h("span", "now")));
  }

  show(values, seconds) {
    const top = roof(Math.max(1, ...values));
    const step = WIDTH / Math.max(1, seconds - 1);
    const points = values.map((value, index) => {
      const x = WIDTH - (values.length - 1 - index) * step;
      return `${x.toFixed(1)},${(HEIGHT - (HEIGHT - 2) * value / top - 1).toFixed(1)}`;
    });
    const first = WIDTH - (values.length - 1) * step;
    this.line.setAttribute("d", points.length ? `M${points.join("L")}` : "");
    this.area.setAttribute("d", points.length ? `M${first.toFixed(1)},${HEIGHT}L${points.join("L")}L${WIDTH},${HEIGHT}Z` : "");
    this.top.textContent = speed(top);
    this.span.textContent = `${Math.round(seconds / 60)} min ago`;
    const most = Math.max(0, ...values);
    this.drawing.setAttribute("aria-label", `${this.title}, last ${Math.round(seconds / 60)} minutes: now ${speed(values.at(-1) ?? 0)}, at most ${speed(most)}`);
  }

  says(text) {
    this.now.textContent = text;
  }
}

/** The next round number above. */
function roof(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * (STEPS.find((step) => step * power >= value) ?? 10);
}
