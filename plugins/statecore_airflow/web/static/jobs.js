// The page with all jobs.
import { age, ask, byId, condition, count, keepLoading, make, prose, renew, setClock, since, waiting } from "./page.js";

const EVERY_MS = 5_000;

function workers(found) {
  if (found === null) return "–";
  return found.ready === found.desired ? String(found.ready) : `${found.ready} of ${found.desired}`;
}

function row(job) {
  const number = (label, ...children) => make("td", { class: "number", "data-label": label }, ...children);
  const why = job.error ?? job.advice[0];
  return make(
    "tr",
    { "data-job": job.name },
    make("th", { scope: "row" }, make("a", { href: `job?name=${encodeURIComponent(job.name)}` }, job.name)),
    make(
      "td",
      { class: "state", title: [job.error, ...job.advice].filter(Boolean).join("; ") },
      condition(job.condition),
      why ? make("p", { class: "why" }, ...prose(why)) : null,
    ),
    number("Parallelism", `${job.parallelism} of ${job.max_parallelism}`),
    number("Workers", workers(job.workers)),
    number("Rows/s", job.rows_per_second === null ? "–" : count(job.rows_per_second)),
    number("Backlog", waiting(job.backlog)),
    number("Event-time lag", job.backlog?.event_time_lag_ms == null ? "–" : since(job.backlog.event_time_lag_ms)),
    number("Newest epoch", job.epoch ? make("span", {}, `#${job.epoch.epoch}, `, age(job.epoch.committed_ms)) : "none yet"),
    number("Newest savepoint", job.savepoint ? age(job.savepoint.created_ms) : "none"),
  );
}

function none() {
  const command = make("code", {}, "python -m statecore register --help");
  const cell = make("td", { colspan: "9", class: "placeholder" }, "No job is registered. From a shell, ", command, " says how.");
  return [make("tr", {}, cell)];
}

async function load() {
  const { now_ms, jobs } = await ask("api/jobs");
  setClock(now_ms);
  renew(byId("jobs"), jobs, () => (jobs.length ? jobs.map(row) : none()));
}

keepLoading(load, EVERY_MS);
