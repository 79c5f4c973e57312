"use strict";
// Sections of a report on one checkpoint.
function summary(data) {
  const part = section("Summary", "summary");
  const rows = [
    ["file", data.file], ["format", data.format], ["size", bytes(data.nbytes)], ["tensors", number(data.tensors.name.length)],
    ["parameters", number(data.parameters)],
    ["bytes", data.dtypes.map(([dtype, count]) => dtype + " " + bytes(count)).join(", ")],
    ["verdict of the scan", data.scans.map((scan) => scan.verdict).join(", ")],
  ];
  const list = make("table", { class: "facts" }, make("tbody", {}, ...rows.map(([label, text]) =>
    make("tr", {}, make("th", { scope: "row" }, label), make("td", {}, text)))));
  part.append(list, ...data.notes.map((note) => make("p", {}, "Note: " + note)), make("p", { class: "soft" }, "Made by " + data.program + "."));
}

// Nodes of the module tree from rows with their depth.
function nodes(rows) {
  const root = { below: [] };
  const path = [root];
  for (const [depth, name, count, tensors, parameters, nbytes, dtype, shape, first] of rows) {
    const node = { name, count, tensors, parameters, nbytes, dtype, shape, first, below: [] };
    path.length = depth + 1;
    path[depth].below.push(node);
    path.push(node);
  }
  return root;
}

function modules(data) {
  const part = section("Modules", "modules");
  const label = (node) => [
    make("span", { class: "mono" }, node.name), " ",
    make("span", { class: "soft" },
      (node.shape && node.count === 1 ? (node.dtype || "") + " " + shapeText(node.shape) : number(node.tensors) + (node.tensors === 1 ? " tensor" : " tensors")
        + (node.shape ? " " + shapeText(node.shape) : "")) + ", " + bytes(node.nbytes)),
  ];
  const show = (node) => node.below.length ? folding(label(node), () => paged(node.below, show)) : leaf(label(node));
  const root = nodes(data.tree);
  part.append(...paged(root.below, show));
  return root;
}

function histogram(stats) {
  if (!stats || !stats.histogram) return null;
  const counts = stats.histogram.counts;
  const most = Math.max(...counts, 1);
  const label = "Histogram from " + statistic(stats.histogram.min) + " to " + statistic(stats.histogram.max);
  return draw("svg", { width: 152, height: 36, viewBox: "0 0 144 36", role: "img", "aria-label": label },
    ...counts.map((count, at) => draw("rect", { class: "bar", x: at * 3, width: 2.6, y: 36 - 35 * count / most, height: 35 * count / most })));
}
const span = (stats) => make("div", { class: "span" }, histogram(stats), make("div", { class: "soft" },
  make("span", {}, statistic(stats.min)), make("span", {}, statistic(stats.max))));
// What is rare, with the number of elements.
const rare = (stats) => [[stats.zeros, "zero"], [stats.nan, "NaN"], [stats.inf, "inf"]].filter(([count]) => count)
  .map(([count, what]) => number(count) + " " + what).join(", ") || "–";

function tensors(data) {
  const part = section("Tensors", "tensors");
  const all = data.tensors;
  const search = make("input", { type: "search", id: "search", placeholder: "part of a name", "aria-describedby": "found" });
  const order = make("select", { id: "order" }, ...["order of the file", "name", "size"].map((text) => make("option", { value: text }, text)));
  const found = make("p", { id: "found", role: "status", class: "soft" });
  const list = make("div", {});
  const columns = ["name", "dtype", "shape", "size", "at byte"].concat(all.stats ? ["mean", "std", "zero, NaN, inf", "from min to max"] : []);
  const row = (at) => {
    const stats = all.stats ? all.stats[at] : null;
    const name = make("span", { class: "mono" }, all.name[at] || "(the root)");
    const cells = [name, all.dtype[at], shapeText(all.shape[at]), bytes(all.nbytes[at]), all.offset[at] === null ? (all.note[at] || "–") : number(all.offset[at])];
    if (!all.stats) return cells;
    if (!stats) return cells.concat(["–", "–", "–", ""]);
    return cells.concat([stats.mean, stats.std].map(statistic), [rare(stats), span(stats)]);
  };
  let shown = PAGE;
  const update = () => {
    const wanted = search.value.toLowerCase();
    let hits = all.name.map((_, at) => at).filter((at) => all.name[at].toLowerCase().includes(wanted));
    if (order.value === "name") hits.sort((a, b) => all.name[a] < all.name[b] ? -1 : 1);
    if (order.value === "size") hits.sort((a, b) => all.nbytes[b] - all.nbytes[a]);
    found.textContent = number(hits.length) + " of " + number(all.name.length) + " tensors" + (hits.length > shown ? ", the first " + number(shown) + " are shown" : "");
    const more = hits.length > shown ? [make("button", { type: "button", onclick: () => { shown += PAGE; update(); } }, "Show more")] : [];
    list.replaceChildren(table(columns, hits.slice(0, shown).map(row), [3, 4, 5, 6]), ...more);
  };
  search.addEventListener("input", () => { shown = PAGE; update(); });
  order.addEventListener("change", update);
  part.append(make("div", { class: "row" }, make("label", { for: "search" }, "Search"), search, make("label", { for: "order" }, "Order"), order), found, list);
  update();
}

// Rectangles whose areas are the sizes: the longer side is divided.
function squarify(items, x, y, width, height, place) {
  const total = items.reduce((sum, item) => sum + item.nbytes, 0);
  if (!total || width < 1 || height < 1) return;
  if (items.length === 1) { place(items[0], x, y, width, height); return; }
  let half = 0;
  let at = 0;
  while (at < items.length - 1 && (at === 0 || half + items[at].nbytes <= total / 2)) { half += items[at].nbytes; at += 1; }
  const part = half / total;
  if (width >= height) {
    squarify(items.slice(0, at), x, y, width * part, height, place);
    squarify(items.slice(at), x + width * part, y, width * (1 - part), height, place);
  } else {
    squarify(items.slice(0, at), x, y, width, height * part, place);
    squarify(items.slice(at), x, y + height * part, width, height * (1 - part), place);
  }
}
function treemap(root) {
  const part = section("Sizes", "sizes");
  const width = 960;
  const height = 420;
  const largest = (node) => node.below.filter((child) => child.nbytes).sort((a, b) => b.nbytes - a.nbytes).slice(0, 150);
  const picture = draw("svg", { viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": "Treemap of bytes by module" });
  const name = (node, path) => path + node.name + ": " + bytes(node.nbytes);
  let drawn = 0;
  const place = (path, level) => (node, x, y, w, h) => {
    drawn += 1;
    const cell = draw("g", {}, draw("rect", { class: level ? "cell inner" : "cell", x, y, width: w, height: h }, draw("title", {}, name(node, path))));
    picture.append(cell);
    const fits = node.name.length * 6.5 < w - 8 && h > 16;
    if (fits) cell.append(draw("text", { x: x + 4, y: y + 13 }, node.name));
    const top = fits && node.below.length ? 18 : 2;
    if (node.below.length && level < 3 && w > 24 && h > 24 && drawn < 2000) {
      squarify(largest(node), x + 2, y + top, w - 4, h - top - 2, place(path + node.name + ".", level + 1));
    }
  };
  squarify(largest(root), 0, 0, width, height, place("", 0));
  const top = largest(root).slice(0, 20);
  part.append(picture, folding(["As a list"], () => [table(["module", "size"], top.map((node) => [node.name, bytes(node.nbytes)]), [1])]));
}

function layout(data) {
  const part = section("Layout of the file", "layout");
  if (data.layout) {
    const whole = data.layout.nbytes;
    const rows = data.layout.parts;
    const picture = draw("svg", { viewBox: "0 0 960 28", role: "img", "aria-label": "Parts of the file in order" },
      draw("rect", { class: "cell", x: 0, y: 0, width: 960, height: 28 }));
    for (const [start, len, kind, name] of rows.slice(0, 5000)) {
      if (kind !== "gap" && len / whole > 0.0005) {
        picture.append(draw("rect", { class: "cell inner", x: 960 * start / whole, y: 0, width: 960 * len / whole, height: 28 }, draw("title", {}, name + ": " + bytes(len))));
      }
    }
    const gaps = rows.filter((row) => row[2] === "gap").reduce((sum, row) => sum + row[1], 0);
    const unused = rows.reduce((sum, row) => sum + row[5], 0);
    part.append(picture, make("p", {}, number(rows.filter((row) => row[2] !== "gap").length) + " parts; " + bytes(gaps)
      + " between them (headers, padding, directories); " + bytes(unused) + " of storages that no tensor uses."));
    part.append(folding(["Parts in order"], () => paged(rows, ([start, len, kind, name, tensors, unused]) => leaf([
      make("span", { class: "mono" }, number(start) + " + " + number(len)), " ", make("span", { class: "soft" }, kind), " ",
      make("span", { class: "mono" }, name), tensors ? " " + number(tensors) + (tensors === 1 ? " tensor" : " tensors") : "",
      unused ? ", " + bytes(unused) + " unused" : ""]))));
  } else {
    part.append(make("p", {}, "The checkpoint consists of several files: " + data.files.join(", ")));
  }
  if (data.left_out_count) {
    part.append(folding([number(data.left_out_count) + " parts that are not listed as tensors or values"], () => paged(data.left_out, (item) =>
      leaf([item.kind + " ", make("span", { class: "mono" }, item.name), " ", make("span", { class: "soft" }, item.reason.replaceAll("_", " ") + (item.nbytes === null ? "" : ", " + bytes(item.nbytes)))]))));
  }
}

function values(data) {
  const part = section("Values", "values");
  if (!data.values.length) { part.append(make("p", {}, "There are no values besides tensors.")); return; }
  const root = { below: new Map() };
  for (const [path, type, value] of data.values) {
    let node = root;
    for (const name of path.split(".").slice(0, 50)) {
      if (!node.below.has(name)) node.below.set(name, { name, below: new Map() });
      node = node.below.get(name);
    }
    node.type = type;
    node.value = valueText(value);
  }
  const label = (node) => [make("span", { class: "mono" }, node.name), " ",
    node.type === undefined ? make("span", { class: "soft" }, "(" + number(node.below.size) + ")") : make("span", { class: "soft" }, node.type), " ",
    node.value === undefined ? "" : make("span", { class: "mono" }, node.value)];
  const show = (node) => node.below.size ? folding(label(node), () => paged([...node.below.values()], show)) : leaf(label(node));
  part.append(...paged([...root.below.values()], show));
}

function globals(data) {
  const part = section("Globals and scan", "globals");
  for (const scan of data.scans) {
    part.append(make("p", {}, scan.file + ": ", make("span", { class: scan.verdict }, scan.verdict)));
    for (const finding of scan.findings || []) part.append(make("p", { class: "dangerous" }, finding.kind + ": " + finding.text));
    for (const text of (scan.missed || []).concat(scan.notes || [])) part.append(make("p", {}, text));
  }
  const uses = new Map();
  for (const pickle of data.scans.flatMap((scan) => scan.pickles || [])) {
    for (const use of pickle.globals || []) uses.set(use.module + "." + use.name, use);
  }
  for (const risk of ["dangerous", "unreviewed", "unknown", "known"]) {
    const names = Object.keys(data.risks).filter((name) => data.risks[name] === risk);
    if (!names.length) continue;
    const node = folding([make("span", { class: risk }, risk), " " + number(names.length)], () => paged(names, (name) => {
      const use = uses.get(name);
      const calls = use ? use.calls.map((call) => "0x" + call.offset.toString(16) + " " + call.opcode + " " + call.text) : [];
      const how = use ? " " + use.uses.join(", ") + ", first at 0x" + use.offset.toString(16) : "";
      return leaf([make("span", { class: "mono" }, name), make("span", { class: "soft" }, how), ...calls.slice(0, 5).map((call) => make("div", { class: "mono soft" }, call))]);
    }));
    node.open = risk !== "known";
    part.append(node);
  }
}

// Replays the recorded changes; every 256th state is kept, so that steps backwards are fast.
class Replay {
  constructor(trace) {
    this.trace = trace;
    this.kept = [{ stack: [...trace.before.stack], metastack: trace.before.metastack.map((frame) => [...frame]), memo: new Map(trace.before.memo) }];
    this.texts = new Map();
    for (const [id, text] of trace.texts) this.texts.set(id, [[-1, text]]);
    trace.steps.forEach((step, at) => {
      if (!step[5]) return;
      const [id, text] = step[5];
      if (!this.texts.has(id)) this.texts.set(id, []);
      this.texts.get(id).push([at, text]);
    });
  }
  // The text of an object after step `at`; objects change while a pickle runs.
  text(id, at) {
    const known = this.texts.get(id) || [];
    let low = 0;
    let high = known.length;
    while (low < high) { const half = (low + high) >> 1; if (known[half][0] <= at) low = half + 1; else high = half; }
    return low ? known[low - 1][1] : "object " + id;
  }
  copy(state) { return { stack: [...state.stack], metastack: state.metastack.map((frame) => [...frame]), memo: new Map(state.memo) }; }
  // The state before step `at`.
  before(at) {
    const slot = Math.floor(at / 256);
    while (this.kept.length <= slot) {
      const state = this.copy(this.kept[this.kept.length - 1]);
      const start = (this.kept.length - 1) * 256;
      for (let step = start; step < start + 256; step += 1) this.apply(state, this.trace.steps[step][4]);
      this.kept.push(state);
    }
    const state = this.copy(this.kept[slot]);
    for (let step = slot * 256; step < at; step += 1) this.apply(state, this.trace.steps[step][4]);
    return state;
  }
  apply(state, change) {
    const [kind, first, second] = change;
    if (kind === "r") { state.stack.length -= first; if (second !== null) state.stack.push(second); }
    else if (kind === "m") { state.metastack.push(state.stack); state.stack = []; }
    else if (kind === "p") { state.stack = state.metastack.pop() || []; if (first !== null) state.stack.push(first); }
    else if (kind === "s") state.memo.set(first, second);
  }
}

function stepper(trace) {
  const part = section("Steps of the pickle", "steps");
  if (trace.error) part.append(make("p", { class: "dangerous" }, "The pickle ends with an error: " + trace.error));
  if (trace.is_cut) part.append(make("p", {}, "Steps " + number(trace.first) + " to " + number(trace.first + trace.steps.length - 1) + " are shown; more follow."));
  if (!trace.steps.length) return;
  const replay = new Replay(trace);
  const name = (at) => trace.opcodes[trace.steps[at][1]];
  const line = (at) => "0x" + trace.steps[at][0].toString(16) + " " + name(at) + (trace.steps[at][2] === null ? "" : " " + trace.steps[at][2]);
  const position = make("p", { id: "position", role: "status" });
  const effect = make("p", { id: "effect", class: "mono" });
  const views = make("div", { class: "two" });
  const list = make("div", { class: "steps", id: "step-list" });
  const offset = make("input", { id: "offset", placeholder: "0x1f", size: 10 });
  const tensor = make("input", { id: "built", list: "built-names", placeholder: "name of a tensor", size: 30 });
  // Attributes of several modules have the same key, which is then numbered.
  const counts = new Map();
  const labels = trace.tensors.map(([key, step]) => {
    counts.set(key, (counts.get(key) || 0) + 1);
    return [counts.get(key) === 1 ? key : key + " #" + counts.get(key), step];
  });
  const names = make("datalist", { id: "built-names" }, ...labels.slice(0, 2000).map(([key]) => make("option", { value: key })));
  let at = 0;
  const items = (ids, when) => {
    const shown = ids.slice(-200);
    return make("ol", { start: Math.max(ids.length - 200, 0), tabindex: "0", "aria-label": ids.length + " objects" }, ...shown.map((id) => make("li", { class: "mono" }, replay.text(id, when))));
  };
  const show = (title, kind, state, when) => make("div", { class: "state", "data-kind": kind },
    make("h3", {}, title),
    make("div", {}, "Stack (" + state.stack.length + ")"), items(state.stack, when),
    folding(["Metastack (" + state.metastack.length + ")"], () => state.metastack.map((frame) => items(frame, when))),
    folding(["Memo (" + state.memo.size + ")"], () => [make("ol", { tabindex: "0", "aria-label": "memo" }, ...[...state.memo].slice(-200).map(([key, id]) => make("li", { class: "mono", value: key }, replay.text(id, when))))]));
  const go = (to) => {
    at = Math.max(0, Math.min(to, trace.steps.length - 1));
    const before = replay.before(at);
    const after = replay.copy(before);
    replay.apply(after, trace.steps[at][4]);
    position.textContent = "Step " + number(trace.first + at) + " of " + number(trace.first) + " to " + number(trace.first + trace.steps.length - 1) + ": " + line(at);
    effect.textContent = trace.steps[at][3];
    const open = [...views.querySelectorAll("details")].map((node) => node.open);
    views.replaceChildren(show("Before", "before", before, at - 1), show("After", "after", after, at));
    [...views.querySelectorAll("details")].forEach((node, index) => { node.open = !!open[index]; });
    const from = Math.max(0, at - 8);
    list.replaceChildren(...trace.steps.slice(from, from + 17).map((_, index) => make("button", {
      type: "button", class: "mono", "aria-current": from + index === at ? "step" : null, onclick: () => go(from + index) }, line(from + index))));
  };
  const jumpOffset = () => {
    const wanted = Number(offset.value.trim());
    if (Number.isNaN(wanted) || !offset.value.trim()) return;
    let to = trace.steps.findIndex((step) => step[0] > wanted);
    go(to === -1 ? trace.steps.length - 1 : Math.max(to - 1, 0));
  };
  const jumpTensor = () => {
    const hits = labels.filter(([key]) => key === tensor.value || tensor.value.endsWith("." + key));
    const hit = labels.find(([key]) => key === tensor.value) || (hits.length === 1 ? hits[0] : null);
    if (hit) go(hit[1]);
    else position.textContent = "No tensor is built under this name in these steps.";
  };
  const button = (text, id, to) => make("button", { type: "button", id, onclick: () => go(to()) }, text);
  const onEnter = (jump) => (event) => { if (event.key === "Enter") jump(); };
  offset.addEventListener("keydown", onEnter(jumpOffset));
  tensor.addEventListener("keydown", onEnter(jumpTensor));
  part.append(
    make("div", { class: "row" }, button("First", "first", () => 0), button("Back", "back", () => at - 1), button("Forward", "forward", () => at + 1), button("Last", "last", () => trace.steps.length - 1)),
    make("div", { class: "row" }, make("label", { for: "offset" }, "Offset"), offset, make("button", { type: "button", id: "to-offset", onclick: jumpOffset }, "Go"),
      make("label", { for: "built" }, "Built tensor"), tensor, names, make("button", { type: "button", id: "to-tensor", onclick: jumpTensor }, "Go")),
    position, effect, views, list);
  part.addEventListener("keydown", (event) => {
    if (event.target.tagName === "INPUT" || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowRight") go(at + 1);
    else if (event.key === "ArrowLeft") go(at - 1);
    else return;
    event.preventDefault();
  });
  go(0);
}

openPage((data) => {
  summary(data);
  const root = modules(data);
  treemap(root);
  tensors(data);
  layout(data);
  values(data);
  globals(data);
  if (data.trace) stepper(data.trace);
});
