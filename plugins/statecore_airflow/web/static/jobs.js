// The page of all jobs.
import { age, ask, backlogText, byId, condition, count, isQuery, keepLoading, make, prose, renew, setClock, since } from "./page.js";

const EVERY_MS = 5_000;

function workers(found) {
  if (found === null) return "–";
  return found.ready === found.desired ? String(found.ready) : `${found.ready} of ${found.desired}`;
}

/** What a job is, and how it can be rescaled. */
function kind(job) {
  const methods = job.methods.map((each) => each.replaceAll("_", " ")).join(", ");
  const title = `${isQuery(job) ? "A query of Spark’s own" : "A job of statecore"}; methods by which it can be rescaled: ${methods}`;
  return make("small", { class: "kind", title }, isQuery(job) ? `Spark’s own query; ${methods}` : methods);
}

function row(job) {
  const number = (label, ...children) => make("td", { class: "number", "data-label": label }, ...children);
  const why = [job.error, job.advice[0]].filter(Boolean);
  const shown = make(
    "tr",
    { "data-job": job.name, class: why.length ? "told" : "" },
    make("th", { scope: "row" }, make("a", { href: `job?name=${encodeURIComponent(job.name)}` }, job.name), kind(job)),
    make("td", {}, condition(job.condition)),
    number("Parallelism", isQuery(job) ? `${job.parallelism} partitions` : `${job.parallelism} of ${job.max_parallelism}`),
    number("Workers", workers(job.workers)),
    number("Rows/s", job.rows_per_second === null ? "–" : count(job.rows_per_second)),
    number("Backlog", backlogText(job.backlog)),
    number("Event-time lag", job.backlog?.event_time_lag_ms == null ? "–" : since(job.backlog.event_time_lag_ms)),
    number("Newest epoch", job.epoch ? make("span", {}, `#${job.epoch.epoch}, `, age(job.epoch.committed_ms)) : "none yet"),
    number("Newest savepoint", job.savepoint ? age(job.savepoint.created_ms) : "none"),
  );
  const lines = why.map((line) => make("p", { class: line === job.error ? "error" : "to-do" }, ...prose(line)));
  return why.length ? [shown, make("tr", { class: "why" }, make("td", { colspan: "9" }, ...lines))] : [shown];
}

function none() {
  const command = make("code", {}, "statecore register --help");
  const cell = make("td", { colspan: "9", class: "placeholder" }, "No job is registered. To register one, see ", command, ".");
  return [make("tr", {}, cell)];
}

async function load() {
  const { now_ms, jobs } = await ask("api/jobs");
  setClock(now_ms);
  renew(byId("jobs"), jobs, () => (jobs.length ? jobs.flatMap(row) : none()));
}

keepLoading(load, EVERY_MS);
