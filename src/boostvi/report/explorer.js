// What moves the pictures: the slider, the play button, the choice of parameters; and the text beside them.

function drawMembers() {
  const step = data.steps[state.at], axes = [data.axes[state.x], data.axes[state.y]].filter((axis) => axis);
  const MOST = 60;
  const head = ["", "component", "weight", ...axes.flatMap((axis) => [`${axis.name}: centre`, "sd"])];
  const rows = step.at.slice(0, MOST).map((row, k) => {
    const fill = colorOf(step.numbers[k]);
    const box = svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, fill }));
    const cells = axes.flatMap((axis) => {
      if (axis.coordinate === null) return ["—", "—"];
      const z = locOf(row, axis.coordinate), sd = sdOf(row, axis.coordinate);
      return [number(onAxis(axis, z)), number(Math.abs(onAxis(axis, z + sd) - onAxis(axis, z - sd)) / 2, 3)];
    });
    const texts = [String(step.numbers[k]), number(step.weights[k], 3), ...cells];
    return element("tr", {}, element("td", {}, box), ...texts.map((text) => element("td", {}, text)));
  });
  const top = element("tr", {}, ...head.map((text) => element("th", { scope: "col", class: "number" }, text)));
  byId("members-table").replaceChildren(element("thead", {}, top), element("tbody", {}, ...rows));
  byId("members-rest").textContent = step.at.length > MOST ? `… and ${step.at.length - MOST} lighter ones` : "";
}

function caption({ rough, missing }) {
  const said = [];
  if (state.y === DENSITY) {
    said.push("Grey bars: draws of the final mixture. Curves: the components of this step and, dark, their sum.");
    if (!data.family.includes("normal")) said.push("Components are drawn as Normals with their mean and standard deviation.");
  } else {
    said.push("Grey dots: draws of the final mixture. Coloured dots: draws of this step, by component.");
    if (!missing.length) said.push(`Each ellipse reaches ${SDS} standard deviations; the stronger its line, the heavier the component.`);
  }
  if (rough) said.push("Dashed: the correlation of this pair is not in the page, so these ellipses are not tilted as they should be.");
  for (const name of missing) said.push(`${name} depends on several coordinates: no outlines of components, only draws.`);
  byId("pair-note").textContent = said.join(" ");
}

let moves = [];
function drawStep() {
  const step = data.steps[state.at], at = (name) => history_[name][step.step];
  caption(state.y === DENSITY ? drawDensity() : drawPair());
  for (const move of moves) move(step.step);
  const [, meaning] = kindOf(at("kind"));
  const first = element("b", {}, `Step ${step.step} of ${lastStep}`);
  const bestText = step.step === data.best ? " (the mixture that the fit returned)" : "";
  byId("readout").replaceChildren(
    first, `${bestText} · ${at("kind")}: ${meaning} · ${at("n_active")} component${at("n_active") === 1 ? "" : "s"} · ` +
    `ELBO ${errorText(at("elbo"), at("elbo_se"))} · KL ≈ ${errorText(at("kl_estimate"), at("kl_se"), 3)} nats · ` +
    `${whole(at("evals"))} evaluations · ${number(at("seconds"), 3)} s`,
  );
  if (byId("members").open) drawMembers();
  const slider = byId("slider");
  if (slider) {
    slider.value = state.at;
    slider.setAttribute("aria-valuetext", `step ${step.step}, ${at("kind")}, ${at("n_active")} components`);
  }
}

function goTo(step) {
  let nearest = 0;
  data.steps.forEach((one, i) => {
    if (Math.abs(one.step - step) < Math.abs(data.steps[nearest].step - step)) nearest = i;
  });
  state.at = nearest;
  drawStep();
}

function drawAll() {
  const elbo = curve(byId("elbo"), "elbo", "elbo_se", { log: false, yName: "ELBO (nats)", pick: goTo });
  const kl = curve(byId("kl"), "kl_estimate", "kl_se", { log: true, yName: "KL (nats)", pick: goTo });
  byId("elbo-note").textContent = elbo.cut ? " The first steps lie far below and are cut off." : "";
  moves = [ribbon(byId("ribbon"), goTo, highlight), elbo.move, kl.move];
  drawStep();
}

// Few parameters: a list to choose from. Many: a field that searches while one types.
const FEW = 30;
function picker(id, which) {
  const host = byId(id), label = host.getAttribute("data-label");
  const options = data.axes.map((axis, i) => [axis.name, i]);
  if (which === "y") options.push(["(density)", DENSITY]);
  const pick = (i) => { state[which] = i; if (state.x === state.y) state.y = DENSITY; sync(); drawStep(); };
  if (nAxes <= FEW) {
    const made = element("select", { id: `${id}-input` }, ...options.map(([name, i]) => element("option", { value: i }, name)));
    made.addEventListener("change", () => pick(Number(made.value)));
    host.append(element("label", {}, `${label} `, made));
    return () => { made.value = state[which]; };
  }
  const list = element("datalist", { id: `${id}-list` }, ...options.map(([name]) => element("option", { value: name })));
  const made = element("input", { id: `${id}-input`, class: "axis-input", type: "search", list: `${id}-list`, autocomplete: "off" });
  const indexOf = (text) => {
    const exact = options.find(([name]) => name === text);
    const found = exact ? [exact] : options.filter(([name]) => name.toLowerCase().includes(text.trim().toLowerCase()));
    return found.length === 1 || exact ? found[0][1] : null;
  };
  made.addEventListener("focus", () => made.select());
  made.addEventListener("input", () => made.removeAttribute("aria-invalid"));
  made.addEventListener("change", () => {
    const i = indexOf(made.value);
    if (i === null) made.setAttribute("aria-invalid", "true");
    else pick(i);
  });
  host.append(element("label", {}, `${label} `, made), list);
  return () => { made.value = options.find(([, i]) => i === state[which])[0]; made.removeAttribute("aria-invalid"); };
}
const syncs = [picker("axis-x", "x"), picker("axis-y", "y")];
const sync = () => syncs.forEach((one) => one());
byId("swap").addEventListener("click", () => {
  if (state.y === DENSITY) return;
  [state.x, state.y] = [state.y, state.x];
  sync();
  drawStep();
});
sync();

const slider = byId("slider");
if (slider) {
  let timer = null;
  const play = byId("play"), pause = Math.max(120, Math.min(800, 12000 / data.steps.length));
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ Play"; };
  slider.max = data.steps.length - 1;
  slider.addEventListener("input", () => { stop(); state.at = Number(slider.value); drawStep(); });
  play.addEventListener("click", () => {
    if (timer !== null) { stop(); return; }
    if (state.at === data.steps.length - 1) { state.at = 0; drawStep(); }
    play.textContent = "❚❚ Pause";
    timer = setInterval(() => {
      if (state.at === data.steps.length - 1) { stop(); return; }
      state.at++;
      drawStep();
    }, pause);
  });
}

byId("members").addEventListener("toggle", () => { if (byId("members").open) drawMembers(); });
legend(byId("kinds"));
let seen = 0;
new ResizeObserver(() => {
  const width = byId("pair").clientWidth;
  if (width !== seen) { seen = width; drawAll(); }
}).observe(byId("pair"));
