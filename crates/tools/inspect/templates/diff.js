"use strict";
// Sections of the differences of two checkpoints.
const CHANGES = {
  changed: "changed", shape: "with another shape", structure: "with another structure", permuted: "permuted", transposed: "transposed",
  reshaped: "reshaped", dtype: "with another dtype", renamed: "renamed", only_in_a: "only in A", only_in_b: "only in B",
};
const changeText = (change) => change.startsWith("only_in_") ? CHANGES[change] : change;
const nameOf = (row) => (row.a || row.b).name;
// Buffers that each step of a training changes; they come last.
const COUNTERS = /(^|\.)(num_batches_tracked|running_mean|running_var)$/;

// What changed, by how much, and what did not.
function sentence(report) {
  const counts = Object.entries(CHANGES).filter(([change]) => report.counts[change] > 0);
  const same = report.counts.same + report.counts.within_tolerance;
  if (report.same) return "The two are the same: all " + number(same) + " tensors and all values.";
  const kinds = counts.map(([change, text]) => number(report.counts[change]) + " " + text).join(", ");
  const values = report.values.length ? number(report.values.length) + (report.values.length === 1 ? " value differs" : " values differ") : "";
  const weights = report.tensors.filter((row) => !COUNTERS.test(nameOf(row)) && row.elements && Number.isFinite(row.elements.relative_norm));
  const most = weights.reduce((best, row) => !best || row.elements.relative_norm > best.elements.relative_norm ? row : best, null);
  const by = most && most.elements.relative_norm > 0 ? ", by up to " + percent(most.elements.relative_norm) + " of the larger norm (" + nameOf(most) + ")" : "";
  const tensors = kinds ? "of the tensors, " + kinds + by : "no tensor differs";
  return "The two differ: " + [tensors, values, number(same) + " tensors are the same"].filter((text) => text).join("; ") + ".";
}

// Says what A and B have, once if it is the same.
function both(row, text) {
  const texts = [row.a, row.b].filter((tensor) => tensor !== null).map(text);
  return texts.length === 2 && texts[0] === texts[1] ? texts[0] : texts.join(" → ");
}

function summary(report) {
  const part = section("Summary", "summary");
  const list = make("table", { class: "facts" }, make("tbody", {},
    ...[["A", report.a], ["B", report.b]].map(([label, input]) => make("tr", {}, make("th", { scope: "row" }, label),
      make("td", { class: "mono" }, input.file), make("td", {}, input.format), make("td", {}, number(input.tensors) + " tensors, " + bytes(input.nbytes))))));
  const verdict = make("p", { id: "verdict", class: report.same ? "clean" : "unknown" }, sentence(report));
  part.append(verdict, list, ...report.notes.map((note) => make("p", {}, "Note: " + note)), make("p", { class: "soft" }, "Made by " + report.program + "."));
}

function counts(report) {
  const part = section("Kinds of changes", "kinds");
  const rows = [["the same", report.counts.same], ["within the tolerance", report.counts.within_tolerance]]
    .concat(Object.entries(CHANGES).map(([change, text]) => [text, report.counts[change]])).filter(([, count]) => count > 0);
  const most = Math.max(...rows.map(([, count]) => count), 1);
  const bar = (count) => draw("svg", { width: 240, height: 12, viewBox: "0 0 240 12", "aria-hidden": "true" },
    draw("rect", { class: "bar", x: 0, y: 0, width: Math.max(240 * count / most, 1), height: 12 }));
  part.append(rows.length ? table(["tensors", "number", "share"], rows.map(([text, count]) => [text, number(count), bar(count)]), [1])
    : make("p", {}, "There are no tensors."));
  if (report.counts.values_cut) {
    part.append(make("p", {}, number(report.counts.values_cut) + " values are the same as far as they were read, and too large to be compared as a whole."));
  }
  if (report.unlisted) part.append(make("p", {}, number(report.unlisted) + " differences are counted and not listed."));
}

// Modules with the numbers of the tensors that differ in them.
function modules(report) {
  const part = section("Modules that differ", "modules");
  const root = { below: new Map(), rows: [] };
  for (const row of report.tensors) {
    let node = root;
    for (const name of nameOf(row).split(".").slice(0, 50)) {
      if (!node.below.has(name)) node.below.set(name, { name, below: new Map(), rows: [] });
      node = node.below.get(name);
      node.rows.push(row);
    }
  }
  const most = (rows) => rows.reduce((largest, row) => Math.max(largest, row.elements ? row.elements.relative_norm : 0), 0);
  const label = (node) => {
    const kinds = [...new Set(node.rows.map((row) => changeText(row.changes[0])))].join(", ");
    const largest = most(node.rows);
    return [make("span", { class: "mono" }, node.name || "(the root)"), " ", make("span", { class: "soft" },
      (node.below.size ? number(node.rows.length) + (node.rows.length === 1 ? " tensor: " : " tensors: ") : "") + kinds + (largest ? ", by up to " + percent(largest) + " of the larger norm" : ""))];
  };
  const show = (node) => node.below.size ? folding(label(node), () => paged([...node.below.values()], show)) : leaf(label(node));
  part.append(...(report.tensors.length ? paged([...root.below.values()], show) : [make("p", {}, "No tensor differs.")]));
}
const percent = (share) => statistic(100 * share) + " %";
// An element of a tensor, which is a text.
const short = (element) => element !== null && element !== "" && Number.isFinite(Number(element)) ? statistic(Number(element)) : String(element);

function tensors(report) {
  const part = section("Tensors that differ", "tensors");
  if (!report.tensors.length) { part.append(make("p", {}, "There are none.")); return; }
  const names = report.tensors.map((row) => both(row, (tensor) => tensor.name));
  const kinds = Object.keys(CHANGES).filter((change) => report.counts[change] > 0);
  const search = make("input", { type: "search", id: "search", placeholder: "part of a name", "aria-describedby": "found" });
  const kind = make("select", { id: "kind" }, make("option", { value: "" }, "all"), ...kinds.map((change) => make("option", { value: change }, changeText(change))));
  const order = make("select", { id: "order" }, ...["most changed first", "name"].map((text) => make("option", { value: text }, text)));
  const found = make("p", { id: "found", role: "status", class: "soft" });
  const list = make("div", {});
  const types = (tensor) => tensor.dtype + " " + shapeText(tensor.shape) + (tensor.kind ? " " + tensor.kind : "");
  const row = (at) => {
    const { changes, elements, order } = report.tensors[at];
    const start = [changes.map(changeText).join(", "), make("span", { class: "mono" }, names[at] || "(the root)"), both(report.tensors[at], types)];
    if (!elements || !elements.count) return start.concat(["–", "–", "–", "–", "–", "", order || (elements ? "equal values" : "")]);
    const first = elements.first ? "first at " + shapeText(elements.first.index) + ": " + short(elements.first.a) + " → " + short(elements.first.b) : "";
    const share = Math.min(elements.relative_norm / 2, 1);
    const bar = draw("svg", { width: 72, height: 12, viewBox: "0 0 72 12", "aria-hidden": "true" },
      draw("rect", { class: "cell", x: 0, y: 0, width: 72, height: 12 }), draw("rect", { class: "bar", x: 0, y: 0, width: 72 * share, height: 12 }));
    const details = [order, elements.not_finite ? number(elements.not_finite) + " NaN or infinite" : "", first].filter((text) => text).join("; ");
    return start.concat([number(elements.count) + " of " + number(elements.numel), statistic(elements.max_abs), statistic(elements.mean_abs),
      percent(elements.relative_norm), statistic(elements.cosine), bar, details]);
  };
  let shown = PAGE;
  const update = () => {
    const wanted = search.value.toLowerCase();
    const hits = names.map((_, at) => at).filter((at) => names[at].toLowerCase().includes(wanted)
      && (!kind.value || report.tensors[at].changes.includes(kind.value)));
    if (order.value === "name") hits.sort((a, b) => names[a] < names[b] ? -1 : 1);
    found.textContent = number(hits.length) + " of " + number(names.length) + " tensors" + (hits.length > shown ? ", the first " + number(shown) + " are shown" : "");
    const more = hits.length > shown ? [make("button", { type: "button", onclick: () => { shown += PAGE; update(); } }, "Show more")] : [];
    const columns = ["change", "tensor", "dtype and shape", "elements", "max |Δ|", "mean |Δ|", "‖Δ‖", "cosine", "‖Δ‖ as a bar", "details"];
    list.replaceChildren(table(columns, hits.slice(0, shown).map(row), [3, 4, 5, 6, 7]), ...more);
  };
  const again = () => { shown = PAGE; update(); };
  search.addEventListener("input", again);
  kind.addEventListener("change", again);
  order.addEventListener("change", again);
  part.append(make("div", { class: "row" }, make("label", { for: "search" }, "Search"), search, make("label", { for: "kind" }, "Change"), kind,
    make("label", { for: "order" }, "Order"), order), found,
    make("p", { class: "soft" }, "Δ is the change of a tensor. Its norm ‖Δ‖ is a part of the larger norm of the two."), list);
  update();
}

function values(report) {
  const part = section("Values that differ", "values");
  if (!report.values.length) { part.append(make("p", {}, "There are none.")); return; }
  // A value of None is null in the data, so the kind of the change says which side has a value.
  const side = (row, value, absent) => row.change === absent ? "–" : make("span", { class: "mono" }, valueText(value));
  part.append(...paged(chunks(report.values, PAGE), (rows) => table(["value", "A", "B"],
    rows.map((row) => [make("span", { class: "mono" }, row.path), side(row, row.a, "only_in_b"), side(row, row.b, "only_in_a")]), [])));
}
function chunks(rows, size) {
  return Array.from({ length: Math.ceil(rows.length / size) }, (_, at) => rows.slice(at * size, at * size + size));
}

openPage((report) => {
  report.tensors.sort((a, b) => COUNTERS.test(nameOf(a)) - COUNTERS.test(nameOf(b)));
  summary(report);
  counts(report);
  modules(report);
  tensors(report);
  values(report);
});
