// The page of all jobs.
import { age, ask, backlogText, byId, colour, condition, count, finding, isQuery, keepLoading, lagText, make, renew, setClock } from "./page.js";

const EVERY_MS = 5_000;
// What the list can be narrowed to, with how many jobs there are of each.
const KINDS = {
  all: () => true,
  critical: (job) => job.severity === "critical",
  warning: (job) => job.severity === "warning",
  ...Object.fromEntries(["failed", "lost", "rescaling", "starting", "stopping", "running", "stopped"].map((each) => [each, (job) => job.condition === each])),
};

let jobs = null; // before the first answer
let kindShown = "all";

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
  const why = job.findings.slice(0, 2);
  const shown = make(
    "tr",
    { "data-job": job.name, class: why.length ? "told" : "" },
    make("th", { scope: "row" }, make("a", { href: `job?name=${encodeURIComponent(job.name)}` }, job.name), kind(job)),
    make("td", {}, condition(job.condition, colour(job))),
    number("Parallelism", isQuery(job) ? `${job.parallelism} partitions` : `${job.parallelism} of ${job.max_parallelism}`),
    number("Workers", workers(job.workers)),
    number("Rows/s", job.rows_per_second === null ? "–" : count(job.rows_per_second)),
    number("Backlog", backlogText(job.backlog)),
    number("Event-time lag", lagText(job.backlog)),
    number("Newest epoch", job.epoch ? make("span", {}, `#${job.epoch.epoch}, `, age(job.epoch.committed_ms)) : "none yet"),
    number("Newest savepoint", job.savepoint ? age(job.savepoint.created_ms) : "none"),
  );
  return why.length ? [shown, make("tr", { class: "why" }, make("td", { colspan: "9" }, ...why.map((each) => finding(job.name, each))))] : [shown];
}

function none() {
  const command = make("code", {}, "statecore register --help");
  const cell = make("td", { colspan: "9", class: "placeholder" }, "No job is registered. To register one, see ", command, ".");
  return [make("tr", {}, cell)];
}

function noneOfThese() {
  return [make("tr", {}, make("td", { colspan: "9", class: "placeholder" }, "No job is like that."))];
}

function kindButton(kind) {
  const found = jobs.filter(KINDS[kind]).length;
  const shown = make("button", { type: "button", "data-focus": kind, "aria-pressed": String(kind === kindShown) }, `${kind} ${found}`);
  shown.addEventListener("click", () => {
    kindShown = kind;
    show();
  });
  return shown;
}

function show() {
  if (jobs === null) return;
  const kinds = Object.keys(KINDS).filter((kind) => kind === "all" || kind === kindShown || jobs.some(KINDS[kind]));
  renew(byId("kinds"), [kinds.map((kind) => [kind, jobs.filter(KINDS[kind]).length]), kindShown], () => kinds.map(kindButton));
  const words = byId("search").value.trim().toLowerCase();
  const shown = jobs.filter((job) => KINDS[kindShown](job) && job.name.toLowerCase().includes(words));
  renew(byId("jobs"), [jobs.length, shown], () => (shown.length ? shown.flatMap(row) : jobs.length ? noneOfThese() : none()));
}

async function load() {
  const answer = await ask("api/jobs");
  setClock(answer.now_ms);
  jobs = answer.jobs;
  show();
}

byId("search").addEventListener("input", show);

keepLoading(load, EVERY_MS);
