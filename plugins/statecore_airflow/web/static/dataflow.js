// A job's dataflow: a box for each source, operator and sink, with its figures, and the lines between them.
import { backlogText, byId, count, make, milliseconds } from "./page.js";

const BUSY_RATIO = 1.5; // a subtask that takes so much longer than the average holds up the others,
const LONG = 0.5; // if it takes this share of an epoch
const redrawn = new WeakMap(); // element → observer of its size

const rate = (rows) => (rows === null ? "–" : `${count(rows)} rows/s`);
const key = (kind, name) => `${kind} ${name}`;

/** Draw the dataflow of an answer of `api/dataflow`. */
export function drawDataflow(element, { nodes, epochs }) {
  const longMs = LONG * (epochs[0]?.duration_ms ?? Infinity);
  // Of one operator alone, that is as it should be.
  const operators = nodes.filter((each) => each.work);
  const longest = operators.length > 1 ? Math.max(...operators.map((each) => each.work.took_ms)) : Infinity;
  const columns = layered(nodes);
  const boxes = new Map();
  const laid = columns.map((column) =>
    make("ul", { class: "layer" }, ...column.map((node) => {
      const shown = box(node, longMs, longest);
      boxes.set(key(node.kind, node.name), shown);
      return shown;
    })));
  const lines = byId("lines").content.firstElementChild.cloneNode();
  element.replaceChildren(lines, ...laid);
  const connect = () => drawLines(lines, element, nodes, boxes);
  redrawn.get(element)?.disconnect();
  const observer = new ResizeObserver(connect);
  observer.observe(element);
  redrawn.set(element, observer);
  connect();
}

/** Return the nodes in columns: each stands behind all that it reads. */
function layered(nodes) {
  const depths = new Map();
  for (const node of nodes) {
    // The server lists a node after its inputs.
    const before = node.inputs.map(([kind, name]) => depths.get(key(kind, name)) ?? 0);
    depths.set(key(node.kind, node.name), before.length ? 1 + Math.max(...before) : 0);
  }
  const columns = [];
  for (const node of nodes) (columns[depths.get(key(node.kind, node.name))] ??= []).push(node);
  return columns.filter(Boolean);
}

function box(node, longMs, longest) {
  const isLong = Boolean(node.work) && node.work.took_ms >= longMs;
  const lines = { source: ofSource, operator: ofOperator, sink: ofSink }[node.kind](node, isLong);
  const from = node.inputs.length ? `, from ${node.inputs.map(([, name]) => name).join(", ")}` : "";
  return make(
    "li",
    { class: "node", "data-kind": node.kind, "aria-label": `${node.kind} ${node.name}${from}`, title: node.does },
    make("strong", {}, node.name),
    make("small", {}, node.kind === "operator" || !node.does ? node.does : `${node.kind}: ${node.does}`),
    ...lines.filter(Boolean).map((line) => make("span", {}, line)),
    isLong && node.work.took_ms === longest ? make("span", { class: "slowest" }, "takes longest") : null,
  );
}

function ofSource({ rows_in: arriving, rows_out: read, backlog }) {
  const behind = arriving !== null && read !== null && arriving > 1.1 * read;
  return [
    `arrive ${rate(arriving)}`,
    make("span", { class: behind ? "slowest" : "" }, `read ${rate(read)}`),
    backlog && backlogText(backlog) !== "–" ? `wait ${backlogText(backlog)}` : null,
  ];
}

function ofOperator({ work }, isLong) {
  if (!work) return [];
  const subtasks = `${count(work.subtasks)} subtask${work.subtasks === 1 ? "" : "s"}`;
  return [
    `${count(work.rows)} rows in an epoch`,
    `${subtasks}, ${milliseconds(work.took_ms)}`,
    work.subtasks > 1
      ? make("span", { class: isLong && work.busy_ratio >= BUSY_RATIO ? "slowest" : "" }, `busiest ${work.busiest}: ${work.busy_ratio.toFixed(1)} × average`)
      : null,
  ];
}

function ofSink({ rows_out: published, took_ms: tookMs }) {
  return [published === null ? null : `publishes ${rate(published)}`, tookMs === null ? null : `in ${milliseconds(tookMs)}`];
}

function drawLines(lines, element, nodes, boxes) {
  const { left, top } = element.getBoundingClientRect();
  const paths = nodes.flatMap((node) => {
    const to = boxes.get(key(node.kind, node.name)).getBoundingClientRect();
    return node.inputs.map((input) => {
      const before = boxes.get(key(...input));
      if (!before) return null;
      const path = document.createElementNS(lines.namespaceURI, "path");
      path.setAttribute("d", curve(before.getBoundingClientRect(), to, left - element.scrollLeft, top));
      return path;
    });
  });
  lines.setAttribute("width", element.scrollWidth);
  lines.setAttribute("height", element.scrollHeight);
  lines.replaceChildren(...paths.filter(Boolean));
}

/** Return a curve from one box to the next: to the right, or down where boxes stand below each other. */
function curve(from, to, left, top) {
  if (from.right <= to.left) {
    const [x0, y0, x1, y1] = [from.right - left, from.top + from.height / 2 - top, to.left - left, to.top + to.height / 2 - top];
    const middle = (x0 + x1) / 2;
    return `M${x0},${y0} C${middle},${y0} ${middle},${y1} ${x1},${y1}`;
  }
  const [x0, y0, x1, y1] = [from.left + from.width / 2 - left, from.bottom - top, to.left + to.width / 2 - left, to.top - top];
  const middle = (y0 + y1) / 2;
  return `M${x0},${y0} C${x0},${middle} ${x1},${middle} ${x1},${y1}`;
}
