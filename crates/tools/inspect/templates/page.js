"use strict";
// Text from the file only ever becomes text nodes: nothing here sets innerHTML.
const main = document.getElementById("main");
const SVG = "http://www.w3.org/2000/svg";
const PAGE = 100;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}
function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}
function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return (unit === 0 ? count : count.toFixed(1)) + " " + units[unit];
}
const number = (count) => count.toLocaleString("en");
const shapeText = (shape) => "[" + shape.join(", ") + "]";

function section(title, id) {
  const heading = make("h2", { id, tabindex: "-1" }, title);
  const part = make("section", { "aria-labelledby": id }, heading);
  main.append(part);
  document.getElementById("sections").append(make("a", { href: "#" + id }, title));
  return part;
}
function table(head, rows, numeric) {
  const cell = (tag, text, at) => make(tag, { class: numeric.includes(at) ? "n" : null, scope: tag === "th" ? "col" : null }, text);
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((text, at) => cell("td", text, at)))));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": head.join(", ") },
    make("table", {}, make("thead", {}, make("tr", {}, ...head.map((text, at) => cell("th", text, at)))), body));
}
// A tree node that is filled when it is opened.
function folding(label, children) {
  const below = make("div", { class: "below" });
  const node = make("details", {}, make("summary", {}, ...label), below);
  node.addEventListener("toggle", () => {
    if (node.open && !below.childNodes.length) below.append(...children());
  });
  return node;
}
const leaf = (label) => make("div", { class: "leaf" }, ...label);

// Rows of a list, some at a time.
function paged(rows, show) {
  const list = make("div", {});
  const more = make("button", { type: "button" }, "Show more");
  let shown = 0;
  const next = () => {
    list.append(...rows.slice(shown, shown + PAGE).map(show));
    shown = Math.min(shown + PAGE, rows.length);
    more.hidden = shown >= rows.length;
    more.textContent = "Show more (" + number(rows.length - shown) + " left)";
  };
  more.addEventListener("click", next);
  next();
  return [list, more];
}

// Values in Python's notation.
function valueText(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return "[" + value.map(valueText).join(", ") + "]";
  if (typeof value === "object") {
    if ("$call" in value) return value.$call + "(" + value.args.map(valueText).join(", ") + ")";
    if ("$items" in value) return "{" + value.$items.map(([key, item]) => valueText(key) + ": " + valueText(item)).join(", ") + "}";
    if ("$complex" in value) return value.$complex.map(valueText).join(" + ") + "j";
    for (const kind of ["$float", "$int", "$global", "$bytes"]) if (kind in value) return (kind === "$bytes" ? "bytes " : "") + value[kind];
    if ("$more" in value) return "<" + value.$more + " too large to show>";
    return "{" + Object.entries(value).map(([key, item]) => JSON.stringify(key) + ": " + valueText(item)).join(", ") + "}";
  }
  return String(value);
}
// A number with at most six digits, in plain notation where it is short.
const statistic = (value) => typeof value === "number" ? digits(value) : value === null ? "–" : valueText(value);

function digits(value) {
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-4 || size >= 1e6) && Number.isFinite(value) ? value.toExponential(5).replace(/\.?0*e\+?/, "e") : String(Number(value.toPrecision(6)));
  return text.replace("-", "−").replace("e-", "e−");
}
// Inflates the data of the page, and shows them.
async function openPage(show) {
  try {
    const text = atob(document.getElementById("data").textContent.trim());
    const packed = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const data = JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text());
    document.getElementById("loading").remove();
    show(data);
    document.body.dataset.ready = "true";
  } catch (error) {
    main.replaceChildren(make("p", { role: "alert" }, "The data cannot be opened: " + error.message + ". A browser of 2023 or newer can open them."));
  }
}
