// A rescale: its fields, and the plan of the state.
import { bytes, count, isQuery, make, since } from "./page.js";

const PLANNED = ["parallelism", "workers", "method", "max_parallelism"];

/** Return the change that rescales a job; see ChangeDialog. */
export function rescale(name, job) {
  // A query of Spark's own has one method, and no key groups.
  const sizes = isQuery(job) ? ["parallelism", "workers"] : PLANNED;
  const asked = [...sizes, "approval", "reason"].filter((each) => each !== "workers" || job.workers !== null);
  return {
    title: `Rescale ${name}`,
    verb: "Rescale",
    dag: "rescale",
    asked,
    initial: { parallelism: job.parallelism, workers: job.workers?.desired },
    planned: PLANNED,
    plan: (values) => `api/plan?${new URLSearchParams({ name, ...values })}`,
    show: planned,
  };
}

function planned(plan) {
  const parts = [];
  if (plan.lines) {
    parts.push(
      make("p", { class: "sum" }, make("strong", {}, `${plan.from_parallelism} → ${plan.to_parallelism} state partitions, ${plan.method}`), ": a copy of the checkpoint, proven row by row, with which the query goes on."),
      make("p", { class: "downtime" }, make("strong", {}, "Expected downtime: "), downtime(plan)),
      ...plan.lines.map((line) => make("p", {}, line)),
    );
    return parts;
  }
  const groups = plan.from_max_parallelism === plan.to_max_parallelism ? "" : `, max parallelism ${plan.from_max_parallelism} → ${plan.to_max_parallelism}`;
  const written = plan.bytes_written ? `${bytes(plan.bytes_written)} rewritten` : "no state is copied";
  parts.push(
    make("p", { class: "sum" }, make("strong", {}, `Parallelism ${plan.from_parallelism} → ${plan.to_parallelism}${groups}, ${plan.method}`), `: ${count(plan.rows)} rows of state, ${bytes(plan.bytes)}; ${written}. As of epoch ${plan.epoch} of lineage ${plan.lineage}.`),
    make("p", { class: "downtime" }, make("strong", {}, "Expected downtime: "), downtime(plan)),
    make("p", {}, make("strong", {}, "Skew: "), `the fullest subtask has ${plan.skew.toFixed(2)} times the rows of the average one.`),
  );
  const states = plan.operators.map(({ uid, rows, bytes: size }) => `${uid} ${count(rows)} rows, ${bytes(size)}`);
  if (states.length > 1) parts.push(make("p", {}, make("strong", {}, "Operators: "), `${states.join("; ")}.`));
  const fixed = Object.entries(plan.fixed).map(([uid, parallelism]) => `${uid} (${parallelism})`);
  if (fixed.length) parts.push(make("p", {}, `The job file fixes the parallelism of ${fixed.join(", ")}.`));
  parts.push(shares(plan));
  return parts;
}

function downtime({ downtime: seen, method }) {
  if (method === "live") return "none; the running driver changes the parallelism between two epochs.";
  if (seen === null) return "unknown; no rescale of this job by this method has completed yet.";
  const range = seen.runs === 1 ? "as in one earlier rescale" : `${since(seen.shortest_ms)} to ${since(seen.longest_ms)} in ${seen.runs} rescales`;
  return `about ${since(seen.median_ms)} (${range}).`;
}

function shares(plan) {
  const most = Math.max(1, ...plan.subtasks.map((each) => each.rows));
  const rows = plan.subtasks.map((each) => {
    const bar = make("span", { class: "share" });
    bar.style.inlineSize = `${(100 * each.rows) / most}%`;
    const number = (text) => make("td", { class: "number" }, text);
    return make("tr", {}, number(String(each.subtask)), number(each.key_groups.join("–")), number(count(each.files)), number(count(each.rows)), number(bytes(each.bytes)), make("td", { class: "bar-cell" }, bar));
  });
  const left = plan.to_parallelism - plan.subtasks.length;
  if (left > 0) rows.push(make("tr", {}, make("td", { colspan: "6" }, `and ${count(left)} more`)));
  const headings = ["Subtask", "Key groups", "Files", "Rows", "Bytes", "Share of the fullest"].map((each) => make("th", { scope: "col", class: "number" }, each));
  return make("div", { class: "scroll shares", tabIndex: 0 }, make("table", {}, make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...rows)));
}
