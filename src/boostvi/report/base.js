// What all parts share: the data, elements made without HTML strings, scales, numbers, the tooltip and the theme.

document.documentElement.classList.add("js");
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

const colorOf = (number) => data.colors[number % data.colors.length];

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const number = (value, digits = 4) => {
  if (value === null || !Number.isFinite(value)) return "—";
  const plain = Number(value.toPrecision(digits));
  const size = Math.abs(plain);
  return (size !== 0 && (size < 1e-4 || size >= 1e6) ? plain.toExponential(digits - 2) : String(plain)).replace("-", "−");
};
const whole = (value) => value.toLocaleString("en-US");

// A map from data to pixels, with round values for its ticks.
function scale(low, high, from, to, log = false) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low), b = f(high);
  const map = (value) => from + ((f(value) - a) / (b - a || 1)) * (to - from);
  map.inverse = (pixel) => {
    const v = a + ((pixel - from) / (to - from)) * (b - a);
    return log ? 10 ** v : v;
  };
  map.ticks = (count) => {
    if (log) {
      const first = Math.ceil(a - 1e-9), last = Math.floor(b + 1e-9);
      if (last - first >= 1) {
        const every = Math.max(1, Math.ceil((last - first) / count));
        return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, i) => 10 ** (first + i * every));
      }
      return [low, Math.sqrt(low * high), high].map((v) => Number(v.toPrecision(2))).filter((v) => v >= low && v <= high);
    }
    const rough = (b - a) / Math.max(count, 1);
    const unit = 10 ** Math.floor(Math.log10(rough || 1));
    const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough) || 10 * unit;
    const ticks = [];
    for (let i = Math.ceil(a / step - 1e-9); i * step <= b + 1e-9 * step && ticks.length < 50; i++) {
      ticks.push(Number((i * step).toPrecision(12)));
    }
    return ticks;
  };
  return map;
}

const tip = byId("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - box.width - 6);
  const y = event.clientY + 16 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.max(4, y)}px`;
}
const hideTip = () => { tip.hidden = true; };
document.addEventListener("scroll", hideTip, { passive: true });

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { byId("theme").textContent = isDark() ? "Light" : "Dark"; };
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();
