"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows];
      const number = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      const order = (a, b) => {
        if (!number) return key(a).localeCompare(key(b));
        return (key(a) === "" ? -Infinity : Number(key(a))) - (key(b) === "" ? -Infinity : Number(key(b)));
      };
      rows.sort((a, b) => (down ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...rows);
    });
  });
}
// A text for the clipboard; a page from disk may not have the first way.
const copy = async (button, text) => {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1500);
};
const copier = (text) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy as CSV";
  button.addEventListener("click", () => copy(button, text()));
  return button;
};
// No text is a formula to a spreadsheet.
const quoted = (value) => {
  let text = String(value ?? "");
  if (/^\s*[=+@-]/.test(text) && Number.isNaN(Number(text))) text = "'" + text;
  return /[",;\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
};
const lines = (rows) => rows.map((row) => row.map(quoted).join(",") + "\n").join("");
const words = (cell) => cell.textContent.replace(/\s+/g, " ").trim();
for (const box of document.querySelectorAll(".scroll")) {
  const table = box.querySelector("table");
  if (!table) continue;
  const tools = document.createElement("div");
  tools.className = "tools";
  const more = document.createElement("span");
  more.className = "more";
  more.textContent = "More columns: scroll sideways →";
  more.hidden = true;
  tools.append(more, copier(() => lines([...table.rows].map((row) => [...row.cells].map((cell) =>
    cell.dataset.c ?? (cell.dataset.v !== undefined && !cell.classList.contains("t") ? cell.dataset.v : words(cell)))))));
  box.before(tools);
  const look = () => {
    const left = box.scrollWidth - box.clientWidth - box.scrollLeft;
    box.classList.toggle("cut", left > 2);
    more.hidden = left <= 2;
  };
  box.addEventListener("scroll", look);
  // The observer tells of the first size too, of all boxes after one layout. The mark of a cut table changes its size:
  // it is set in the next frame, for else the browser complains of a loop.
  new ResizeObserver(() => requestAnimationFrame(look)).observe(box);
}
// Values under the pointer. The drawing is 520 wide; axes go from 66 to 506 and from 236 up to 26.
const EDGES = { left: 66, right: 506, top: 26, floor: 236, wide: 520 };
const digits = (value) => Number(value.toPrecision(4)).toString().replace("-", "−");
const prefixed = (value, units) => {
  const [divisor, unit] = units.find(([divisor]) => Math.abs(value) >= 0.9995 * divisor) ?? units.at(-1);
  return digits(value / divisor) + (unit && " " + unit);
};
const UNITS = {
  time: (v) => prefixed(v, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]),
  rate: (v) => prefixed(v, [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"], [1, "bit/s"]]),
  size: (v) => digits(v) + " bytes",
  share: (v) => digits(100 * v) + " %",
  probability: digits,
  count: digits,
};
const at = (axis, value) => {
  const { low, high } = axis;
  const share = axis.log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, share));
};
const shown = (axis, value) => {
  const name = axis.names.find(([place]) => Math.abs(place - value) < 1e-9 * Math.abs(place));
  return name ? name[1] : UNITS[axis.quantity](value);
};
const WIDTHS = { line: 2, steps: 2, dots: 2, bars: 3 };
const rowsOf = (numbers, width) => {
  const rows = [];
  for (let k = 0; k + width <= numbers.length; k += width) rows.push(numbers.slice(k, k + width));
  return rows;
};
// A row with the range that is meant where another one is drawn.
const asMeant = (row) => row.length < 6 ? row : [row[0], row[1], ...(row[5] ?? row.slice(2, 4)), row[4]];
// Rows near a place of the drawing: [x to mark, text], one a series.
const near = (plot, series, px, py) => {
  const X = (v) => EDGES.left + at(plot.x, v) * (EDGES.right - EDGES.left);
  const Y = (v) => EDGES.floor - at(plot.y, v) * (EDGES.floor - EDGES.top);
  const found = [];
  for (const [name, rows] of series) {
    let best = null;
    let least = Infinity;
    for (const row of rows) {
      if (plot.shape === "cells" || plot.shape === "bars") {
        if (px < X(row[0]) - 0.3 || px > X(row[1]) + 0.3) continue;
        if (plot.shape === "cells" && (py > Y(row[2]) + 0.3 || py < Y(row[3]) - 0.3)) continue;
        best = row;
        break;
      }
      const x = X(row[0]);
      const far = plot.shape === "dots" ? Math.hypot(px - x, py - Y(row[1]))
        : plot.shape === "steps" && x > px + 0.5 ? Infinity : Math.abs(px - x);
      if (row[1] !== null && far < Infinity && far <= least) [best, least] = [row, far];
    }
    if (!best) continue;
    const [a, b, c, d, e, meant] = best;
    const x = (v) => shown(plot.x, v);
    const y = (v) => shown(plot.y, v);
    const text = plot.shape === "bars" ? `${x(a)} … ${x(b)}: ${y(c)}`
      : plot.shape === "cells" ? `${x(a)} … ${x(b)}\n${meant ? `${UNITS.time(meant[0])} … ${UNITS.time(meant[1])}\n`
        : plot.y.names.length ? "" : `${y(c)} … ${y(d)}\n`}${name}: `
        + (plot.columns[4].endsWith("share") ? UNITS.share(e) : digits(e))
      : plot.shape === "dots" ? `${plot.x.label} ${x(a)}\n${plot.y.label} ${y(b)}`
      : `${name}: ${plot.x.label} ${x(a)}, ${y(b)}`;
    found.push([plot.shape === "bars" || plot.shape === "cells" ? (X(a) + X(b)) / 2 : X(a), text]);
  }
  return found;
};
for (const figure of document.querySelectorAll("figure")) {
  const data = figure.querySelector("script[type='application/json']");
  const svg = figure.querySelector("svg");
  if (!data || !svg) continue;
  const plot = JSON.parse(data.textContent);
  const width = WIDTHS[plot.shape];
  const series = plot.series.map(([name, numbers]) => [name, plot.shape === "cells"
    ? rowsOf(numbers, 3).map(([x, y, value]) => [...plot.xs[x], ...plot.ys[y], value, plot.meant?.[y]])
    : rowsOf(numbers, width)]);
  figure.querySelector("figcaption").append(copier(() => lines([["series", ...plot.columns],
    ...series.flatMap(([name, rows]) => rows.map((row) => [name, ...asMeant(row)]))])));
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);
  const mark = document.createElementNS(svg.namespaceURI, "path");
  mark.setAttribute("class", "ref");
  svg.append(mark);
  const hide = () => { tip.hidden = true; mark.setAttribute("d", ""); };
  svg.addEventListener("pointerleave", hide);
  const show = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = EDGES.wide / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    if (px < EDGES.left - 4 || px > EDGES.right + 4 || py > EDGES.floor + 4) return hide();
    const found = near(plot, series, px, py);
    if (found.length === 0) return hide();
    tip.textContent = found.map(([, text]) => text).join("\n");
    mark.setAttribute("d", plot.shape === "dots" ? "" : `M${found[0][0].toFixed(1)} ${EDGES.top}V${EDGES.floor}`);
    tip.hidden = false;
    const outer = figure.getBoundingClientRect();
    const wish = event.clientX - outer.left + 14;
    tip.style.left = `${Math.max(6, Math.min(wish, outer.width - tip.offsetWidth - 6))}px`;
    tip.style.top = `${event.clientY - outer.top + 16}px`;
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
}
