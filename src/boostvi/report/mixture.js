// The mixture of one step, over two parameters or along one.

const components = {
  ...data.components,
  loc: new Uint16Array(bytes(data.components.loc).buffer),
  logSd: bytes(data.components.log_sd),
  rho: new Int8Array(bytes(data.components.correlations).buffer),
};
const stepDraws = bytes(data.draws.values), owners = new Uint16Array(bytes(data.draws.owners).buffer);
const backdrop = bytes(data.backdrop.values);
const nAxes = data.axes.length, nCoordinates = components.low.length;
const DENSITY = -1;
const SDS = 2; // standard deviations from the centre to an ellipse
const state = { at: data.steps.length - 1, x: data.start[0], y: data.start.length > 1 ? data.start[1] : DENSITY };
const best = data.steps.findIndex((one) => one.step === data.best);
if (best >= 0) state.at = best;

const locOf = (row, c) => components.low[c] + (components.loc[row * nCoordinates + c] / 65535) * components.width[c];
const sdOf = (row, c) => Math.exp(components.log_sd_low + components.logSd[row * nCoordinates + c] * components.log_sd_unit);

// The correlation of a component in two coordinates; null where the page does not hold it.
function rhoOf(row, a, b) {
  if (a === b) return 1;
  if (data.diagonal) return 0;
  const n = components.correlated, i = Math.min(a, b), j = Math.max(a, b);
  if (j >= n) return null;
  const pairs = (n * (n - 1)) / 2;
  return components.rho[row * pairs + i * n - (i * (i + 1)) / 2 + (j - i - 1)] / 127;
}

// From a coordinate of R^d to the axis: straight lines between knots, and on beyond them.
function onAxis(axis, z) {
  if (!axis.knots) return z;
  const [from, to] = axis.knots;
  let i = 1;
  while (i < from.length - 1 && from[i] < z) i++;
  return to[i - 1] + ((z - from[i - 1]) / (from[i] - from[i - 1])) * (to[i] - to[i - 1]);
}

const decode = (axis, code) => axis.low + (code / 254) * (axis.high - axis.low);

function dots(count, xCode, yCode, keep, sx, sy, xAxis, yAxis) {
  let path = "";
  for (let i = 0; i < count; i++) {
    const a = xCode(i), b = yCode(i);
    if (a === 255 || b === 255 || !keep(i)) continue;
    path += `M${sx(decode(xAxis, a)).toFixed(1)} ${sy(decode(yAxis, b)).toFixed(1)}h0`;
  }
  return path;
}

const titleOf = (number) => `component ${number}`;
function about(step, k, ...axes) {
  const row = step.at[k];
  const places = axes.filter((axis) => axis.coordinate !== null).map((axis) => {
    const z = locOf(row, axis.coordinate), sd = sdOf(row, axis.coordinate);
    const spread = Math.abs(onAxis(axis, z + sd) - onAxis(axis, z - sd)) / 2;
    return `${axis.name}: ${number(onAxis(axis, z))} ± ${number(spread, 2)}`;
  });
  return [titleOf(step.numbers[k]), `weight ${number(step.weights[k], 3)}`, ...places].join("\n");
}

function hoverable(shape, number, text) {
  shape.setAttribute("data-number", number);
  shape.addEventListener("pointermove", (event) => { showTip(event, text); highlight(number); });
  shape.addEventListener("pointerleave", () => { hideTip(); highlight(null); });
  return shape;
}

function highlight(number) {
  for (const one of document.querySelectorAll("[data-number]")) {
    one.classList.toggle("dim", number !== null && one.getAttribute("data-number") !== String(number));
  }
}

function drawPair() {
  const host = byId("pair"), step = data.steps[state.at], xAxis = data.axes[state.x], yAxis = data.axes[state.y];
  const height = Math.min(520, Math.max(300, host.clientWidth * 0.85));
  const ranges = { x: [xAxis.low, xAxis.high], y: [yAxis.low, yAxis.high] };
  const { plot, sx, sy, root } = chart(host, { height, ...ranges, xName: xAxis.name, yName: yAxis.name });
  const n = data.draws.count, m = data.backdrop.count;
  const behind = (axis) => (i) => backdrop[axis * m + i];
  const of = (axis) => (i) => stepDraws[(state.at * nAxes + axis) * n + i];
  const all = () => true;
  plot.append(svg("path", { class: "backdrop", d: dots(m, behind(state.x), behind(state.y), all, sx, sy, xAxis, yAxis) }));
  const a = xAxis.coordinate, b = yAxis.coordinate;
  let rough = false;
  // The heaviest come first: drawn last, they lie on top.
  for (let k = step.at.length - 1; k >= 0; k--) {
    const own = (i) => owners[state.at * n + i] === k;
    const number = step.numbers[k], color = colorOf(number), weight = step.weights[k];
    const path = dots(n, of(state.x), of(state.y), own, sx, sy, xAxis, yAxis);
    if (path) plot.append(hoverable(svg("path", { class: "dots", d: path, stroke: color }), number, about(step, k, xAxis, yAxis)));
    if (a === null || b === null) continue;
    const rho = rhoOf(step.at[k], a, b), r = rho ?? 0;
    rough ||= rho === null;
    const cx = locOf(step.at[k], a), cy = locOf(step.at[k], b), sa = sdOf(step.at[k], a), sb = sdOf(step.at[k], b);
    const points = Array.from({ length: 64 }, (_, i) => {
      const u = SDS * Math.cos((i * Math.PI) / 32), v = SDS * Math.sin((i * Math.PI) / 32);
      const z = [cx + sa * u, cy + sb * (r * u + Math.sqrt(Math.max(0, 1 - r * r)) * v)];
      return `${sx(onAxis(xAxis, z[0])).toFixed(1)} ${sy(onAxis(yAxis, z[1])).toFixed(1)}`;
    });
    const shape = svg("path", {
      class: `ellipse${rho === null ? " rough" : ""}`, d: `M${points.join("L")}z`, stroke: color, fill: color,
      "fill-opacity": (0.04 + 0.22 * weight).toFixed(3), "stroke-opacity": (0.35 + 0.65 * Math.sqrt(weight)).toFixed(3),
    });
    plot.append(hoverable(shape, number, about(step, k, xAxis, yAxis)));
  }
  root.setAttribute("aria-label", `The mixture after step ${step.step} over ${xAxis.name} and ${yAxis.name}`);
  return { rough, missing: [xAxis, yAxis].filter((axis) => axis.coordinate === null).map((axis) => axis.name) };
}

function drawDensity() {
  const host = byId("pair"), step = data.steps[state.at], axis = data.axes[state.x];
  const BINS = 48, m = data.backdrop.count, width = (axis.high - axis.low) / BINS;
  const bars = new Array(BINS).fill(0);
  let inside = 0;
  for (let i = 0; i < m; i++) {
    const code = backdrop[state.x * m + i];
    if (code !== 255) { bars[Math.min(BINS - 1, Math.floor((code / 254) * BINS))] += 1 / (m * width); inside++; }
  }
  const known = axis.coordinate !== null, curves = [];
  const N = 240, xs = [], slopes = [], total = new Array(N + 1).fill(0);
  if (known) {
    const c = axis.coordinate, rows = step.at;
    let low = Infinity, high = -Infinity;
    for (const row of rows) {
      low = Math.min(low, locOf(row, c) - 4 * sdOf(row, c));
      high = Math.max(high, locOf(row, c) + 4 * sdOf(row, c));
    }
    const h = (high - low) / N;
    for (let i = 0; i <= N; i++) {
      xs.push(onAxis(axis, low + i * h));
      slopes.push(Math.abs(onAxis(axis, low + (i + 0.5) * h) - onAxis(axis, low + (i - 0.5) * h)) / h || Infinity);
    }
    rows.forEach((row, k) => {
      const mean = locOf(row, c), sd = sdOf(row, c);
      const heights = xs.map((_, i) => {
        const u = (low + i * h - mean) / sd;
        return (step.weights[k] * Math.exp(-0.5 * u * u)) / (sd * Math.sqrt(2 * Math.PI)) / slopes[i];
      });
      heights.forEach((v, i) => { total[i] += v; });
      curves.push([k, heights]);
    });
  }
  const top = 1.08 * Math.max(...bars, ...(known ? total : [0]), 1e-12);
  const height = Math.min(420, Math.max(280, host.clientWidth * 0.7));
  const made = chart(host, { height, x: [axis.low, axis.high], y: [0, top], xName: axis.name, yName: "density" });
  const { plot, sx, sy, root } = made;
  bars.forEach((v, i) => {
    const x = sx(axis.low + i * width), y = sy(v);
    plot.append(svg("rect", { class: "backbars", x, y, width: sx(axis.low + width) - sx(axis.low), height: sy(0) - y }));
  });
  const line = (heights) => xs.map((x, i) => `${sx(x).toFixed(1)},${sy(heights[i]).toFixed(1)}`).join("L");
  for (const [k, heights] of curves.reverse()) {
    const color = colorOf(step.numbers[k]);
    const shape = svg("path", { class: "ellipse", d: `M${line(heights)}`, stroke: color, fill: color, "fill-opacity": 0.15 });
    plot.append(hoverable(shape, step.numbers[k], about(step, k, axis)));
  }
  if (known) plot.append(svg("path", { class: "total", d: `M${line(total)}` }));
  root.setAttribute("aria-label", `Density of ${axis.name} after step ${step.step}`);
  return { rough: false, missing: known ? [] : [axis.name] };
}
