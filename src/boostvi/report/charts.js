// Axes, the curves over the steps, and the ribbon of weights.

const KINDS = {
  init: ["#7f7f7f", "the start"],
  "frank-wolfe": ["#0072b2", "weight went to a new component"],
  away: ["#d55e00", "weight was taken from the worst component"],
  pairwise: ["#009e73", "weight went from the worst component to a new one"],
  drop: ["#cc79a7", "a component left the mixture"],
  fallback: ["#e69f00", "the step-size rule gave up and its fallback acted"],
  refine: ["#56b4e9", "nothing new was found; the components there were improved"],
};
const kindOf = (kind) => KINDS[kind] || ["#7f7f7f", ""];

// An empty chart in `host`: a frame, ticks, and a plot area that clips what is drawn in it.
function chart(host, { height, x, y, log = false, xName = "", yName = "", below = 0, steps = false }) {
  const width = Math.max(260, host.clientWidth);
  const right = 10, top = 8, bottom = 26 + (xName ? 16 : 0) + below;
  const tall = height - top - bottom, sy = scale(y[0], y[1], tall, 0, log);
  const yTicks = sy.ticks(Math.max(2, tall / 34));
  const left = Math.max(58, 30 + 7 * Math.max(...yTicks.map((tick) => number(tick).length)));
  const inner = { width: width - left - right, height: tall };
  const sx = scale(x[0], x[1], 0, inner.width);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img" });
  const plot = svg("svg", { x: left, y: top, width: inner.width, height: inner.height });
  for (const tick of sx.ticks(Math.max(2, inner.width / 75))) {
    if (steps && !Number.isInteger(tick)) continue;
    const at = left + sx(tick);
    root.append(svg("line", { x1: at, x2: at, y1: top, y2: top + inner.height, class: "grid" }));
    root.append(svg("text", { x: at, y: top + inner.height + 16 + below, "text-anchor": "middle" }, number(tick)));
  }
  for (const tick of yTicks) {
    const at = top + sy(tick);
    root.append(svg("line", { x1: left, x2: left + inner.width, y1: at, y2: at, class: "grid" }));
    root.append(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, number(tick)));
  }
  root.append(plot, svg("rect", { x: left, y: top, width: inner.width, height: inner.height, class: "frame" }));
  if (xName) {
    root.append(svg("text", { x: left + inner.width / 2, y: height - 4, "text-anchor": "middle", class: "name" }, xName));
  }
  if (yName) {
    const middle = top + inner.height / 2;
    const turn = `rotate(-90 12 ${middle})`;
    root.append(svg("text", { x: 12, y: middle, transform: turn, "text-anchor": "middle", class: "name" }, yName));
  }
  host.replaceChildren(root);
  const stepAt = (event) => {
    const box = root.getBoundingClientRect();
    return sx.inverse((event.clientX - box.left) * (width / box.width) - left);
  };
  return { root, plot, sx, sy, left, top, inner, stepAt };
}

const history_ = data.history;
const lastStep = history_.step.length - 1;
const stepRange = lastStep > 0 ? [-0.02 * lastStep, 1.02 * lastStep] : [-0.5, 0.5];
const errorText = (value, error, digits = 6) => `${number(value, digits)}${error === null ? "" : ` ± ${number(error, 2)}`}`;

function stepText(step) {
  const at = (name) => history_[name][step];
  return [
    `step ${step}: ${at("kind")}`,
    `ELBO ${errorText(at("elbo"), at("elbo_se"))}`,
    `KL ≈ ${errorText(at("kl_estimate"), at("kl_se"), 3)} nats`,
    `${at("n_active")} component${at("n_active") === 1 ? "" : "s"}`,
  ].join("\n");
}

// The steps under the pointer, in a chart over the steps: hovering tells, clicking goes there.
function listen(made, pick) {
  const stepOf = (event) => Math.min(lastStep, Math.max(0, Math.round(made.stepAt(event))));
  made.root.addEventListener("pointermove", (event) => showTip(event, stepText(stepOf(event))));
  made.root.addEventListener("pointerleave", hideTip);
  made.root.addEventListener("click", (event) => pick(stepOf(event)));
}

// Steps without gaps between them.
function runs(steps) {
  const found = [];
  for (const step of steps) {
    if (found.length && found.at(-1).at(-1) === step - 1) found.at(-1).push(step);
    else found.push([step]);
  }
  return found;
}

// A curve with its band of two standard errors. Returns the function that moves the mark.
function curve(host, name, errorName, { log, yName, pick }) {
  const values = history_[name], errors = history_[errorName];
  const steps = history_.step.filter((step) => values[step] !== null);
  const floor = log ? Math.max(1e-4, 0.5 * Math.min(...steps.map((s) => values[s]).filter((v) => v > 0), 1)) : -Infinity;
  const low = (s) => Math.max(floor, values[s] - 2 * (errors[s] ?? 0));
  const high = (s) => Math.max(floor, values[s] + 2 * (errors[s] ?? 0));
  const at = (s) => Math.max(floor, values[s]);
  let bottom = Math.min(...steps.map(low)), top = Math.max(...steps.map(high));
  let cut = false;
  if (!steps.length) [bottom, top] = log ? [0.1, 1] : [0, 1];
  if (!log && steps.length > 4) {
    const sorted = steps.map(at).sort((a, b) => a - b);
    const enough = top - 12 * (top - sorted[Math.floor(sorted.length / 2)]);
    cut = enough > bottom && enough < top;
    if (cut) bottom = enough;
  }
  const pad = log ? 1.15 : 0.04 * (top - bottom || 1);
  const y = log ? [bottom / pad, top * pad] : [bottom - pad, top + pad];
  const made = chart(host, { height: 170, x: stepRange, y, log, xName: "boosting step", yName, steps: true });
  const { sx, sy, plot } = made;
  for (const run of runs(steps)) {
    const up = run.map((s) => `${sx(s)},${sy(high(s))}`), down = run.map((s) => `${sx(s)},${sy(low(s))}`).reverse();
    plot.append(svg("path", { class: "band", d: `M${[...up, ...down].join("L")}z` }));
    plot.append(svg("path", { class: "curve", d: `M${run.map((s) => `${sx(s)},${sy(at(s))}`).join("L")}` }));
  }
  if (steps.length <= 40) for (const s of steps) plot.append(svg("circle", { class: "point", cx: sx(s), cy: sy(at(s)), r: 2.4 }));
  if (values[data.best] !== null) {
    plot.append(svg("circle", { class: "best", cx: sx(data.best), cy: sy(at(data.best)), r: 7 }));
  }
  const marker = svg("line", { class: "marker", y1: 0, y2: made.inner.height });
  const now = svg("circle", { class: "now", r: 4.5 });
  plot.append(marker, now);
  made.root.setAttribute("aria-label", `${yName} over the boosting steps`);
  listen(made, pick);
  const move = (step) => {
    marker.setAttribute("x1", sx(step));
    marker.setAttribute("x2", sx(step));
    now.setAttribute("visibility", values[step] === null ? "hidden" : "visible");
    if (values[step] !== null) {
      now.setAttribute("cx", sx(step));
      now.setAttribute("cy", sy(at(step)));
    }
  };
  return { move, cut };
}

// The weights of all components, stacked, over the steps that the page holds; below, the kind of each step.
function ribbon(host, pick, highlight) {
  const steps = data.steps, single = steps.length === 1;
  const xs = single ? [steps[0].step - 0.5, steps[0].step + 0.5] : steps.map((one) => one.step);
  const shown = single ? [steps[0], steps[0]] : steps;
  const x = single ? [steps[0].step - 0.5, steps[0].step + 0.5] : stepRange;
  const made = chart(host, { height: 190, x, y: [0, 1], xName: "boosting step", yName: "weight", below: 12, steps: true });
  const { sx, sy, plot, root } = made;
  const names = [...new Set(steps.flatMap((one) => one.numbers))].sort((a, b) => a - b);
  const base = shown.map(() => 0);
  const places = shown.map((one) => new Map(one.numbers.map((name, k) => [name, one.weights[k]])));
  for (const name of names) {
    const from = [...base];
    let first = shown.length, last = -1;
    places.forEach((place, i) => {
      const weight = place.get(name) ?? 0;
      base[i] += weight;
      if (weight > 0) { first = Math.min(first, i); last = i; }
    });
    first = Math.max(0, first - 1);
    last = Math.min(shown.length - 1, last + 1);
    const edge = (of) => Array.from({ length: last - first + 1 }, (_, i) => `${sx(xs[first + i])},${sy(of[first + i])}`);
    const d = `M${[...edge(base), ...edge(from).reverse()].join("L")}z`;
    const area = svg("path", { class: steps.some((one) => one.at.length > 24) ? "ribbon many" : "ribbon", d, fill: colorOf(name), "data-number": name });
    area.addEventListener("pointerenter", () => highlight(name));
    area.addEventListener("pointerleave", () => highlight(null));
    plot.append(area);
  }
  const y = made.top + made.inner.height + 3;
  const width = Math.max(1.5, Math.min(9, made.inner.width / (lastStep + 1) - 1));
  for (const step of single ? [] : history_.step) {
    const fill = kindOf(history_.kind[step])[0];
    root.append(svg("rect", { x: made.left + sx(step) - width / 2, y, width, height: 8, fill, class: "kind" }));
  }
  const marker = svg("line", { class: "marker", y1: 0, y2: made.inner.height });
  plot.append(marker);
  root.setAttribute("aria-label", "Weights of the components over the boosting steps");
  root.addEventListener("pointermove", (event) => {
    const step = Math.min(lastStep, Math.max(0, Math.round(made.stepAt(event))));
    const name = event.target.getAttribute("data-number");
    const place = steps.find((one) => one.step === step);
    const k = name === null || !place ? -1 : place.numbers.indexOf(Number(name));
    showTip(event, k < 0 ? stepText(step) : `component ${name}: weight ${number(place.weights[k], 3)}\n${stepText(step)}`);
  });
  root.addEventListener("pointerleave", hideTip);
  root.addEventListener("click", (event) => pick(Math.round(made.stepAt(event))));
  return (step) => {
    marker.setAttribute("x1", sx(step));
    marker.setAttribute("x2", sx(step));
  };
}

function legend(host) {
  const kinds = Object.keys(KINDS).filter((kind) => history_.kind.includes(kind));
  host.replaceChildren(...kinds.map((kind) => {
    const [fill, meaning] = kindOf(kind);
    const box = svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, fill }));
    return element("span", { title: meaning }, box, kind);
  }));
}
