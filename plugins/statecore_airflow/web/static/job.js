// The page of one job.
import { Changes } from "./changes.js";
import { drawSeries, drawSpread, onZoom } from "./charts.js";
import { drawDataflow } from "./dataflow.js";
import { showAudit, showDefinition } from "./definition.js";
import { ChangeDialog } from "./dialog.js";
import { Epochs } from "./epochs.js";
import { allowLookup, offerLookup } from "./lookup.js";
import {
  AIRFLOW, age, airflowLink, ask, backlogText, bothClocks, byId, bytes, colour, condition, count, finding, folded, isQuery, keepLoading, lagText, leadOut, make, milliseconds, prose, renew, setClock, since, table, utc,
} from "./page.js";

const EVERY_MS = 5_000;
const SPREAD_EVERY_MS = 30_000;
const DEFINITION_EVERY_MS = 30_000;
const SERIES_EVERY_MS = 60_000; // upper limit; otherwise the series is reloaded once per step
// How a diagnosis is coloured; all others ask for a person.
const AILMENTS = { healthy: "running", too_small: "rescaling", too_large: "rescaling" };
const SPANS = { 15: "15 min", 60: "1 h", 360: "6 h", 1440: "24 h", 10080: "7 d", 43200: "30 d", 129600: "90 d" };

const FURTHEST = Math.max(...Object.keys(SPANS).map(Number));

const name = new URLSearchParams(location.search).get("name") ?? "";
const query = new URLSearchParams({ name });
const epochs = new Epochs(name);
let minutes = 15;
let zoom = null; // a range of the past, {minutes, until_ms}, instead of the newest minutes
let series = null;
let seriesMs = 0;
let seriesKey = null; // of what was loaded
let spreads = null;
let spreadsMs = 0;
let dataflow = null;
let definitionMs = 0;

byId("name").textContent = name;
byId("log").href = `log?${query}`;
document.title = name;
offerLookup(name);

function tile(title, value, note) {
  return make("div", { class: "tile" }, make("h3", {}, title), make("p", { class: "value" }, value), make("p", { class: "note" }, note ?? ""));
}

/** How far the clock of who reads this is from UTC. */
function clockWords() {
  const aheadMinutes = -new Date().getTimezoneOffset();
  if (aheadMinutes === 0) return "";
  return `; your clock is ${since(Math.abs(aheadMinutes) * 60_000).replace(" 0 min", "")} ${aheadMinutes > 0 ? "ahead" : "behind"}`;
}

/** Whether what waits grows, or how long it will last at the present rates. */
function drain({ backlog }) {
  const waits = [backlog?.records, backlog?.files, backlog?.bytes].some(Boolean);
  if (!waits || dataflow === null || dataflow.growth === null) return null;
  if (dataflow.drained_in_ms !== null) return `gone in about ${since(dataflow.drained_in_ms)}`;
  return dataflow.growth > 0 ? `growing by ${count(dataflow.growth)} rows/s` : "steady";
}

/** The source that holds event time back, those that it goes on without, and where it stands; the tile shows two lines. */
function eventTimeWords({ watermark_ms: watermark, held_by: held, source_times: times }, measured) {
  const idle = Object.keys(times).filter((each) => times[each].idle);
  const moved = held === null ? null : times[held].moved_ms;
  const parts = [
    held === null ? [] : times[held].watermark_ms === null ? [`waits for the first record of ${held}`]
      : [`held back by ${held}, `, ...(moved === null ? ["unmoved since the driver started"] : ["last moved ", age(moved)])],
    idle.length ? [`without ${idle.join(", ")}, idle`] : [],
    [measured],
    watermark === null ? [] : [make("span", { title: bothClocks(watermark) }, `watermark ${utc(watermark)}`)],
  ];
  return make("span", {}, ...parts.filter((each) => each.length).flatMap((each, place) => (place ? ["; ", ...each] : each)));
}

function tiles({ job, sources, ...times }) {
  const measured = job.backlog_ms === null ? "never measured" : age(job.backlog_ms);
  const waits = [job.backlog?.oldest_age_ms ? `the oldest for ${since(job.backlog.oldest_age_ms)}` : null,
    job.backlog?.skew ? `fullest partition ${job.backlog.skew.toFixed(1)} times the average` : null].filter(Boolean).join(", ");
  const perSource = sources.length > 1 ? sources.map((each) => `${each.name}: ${backlogText(each)}`).join("; ") : null;
  const workers = job.workers;
  return [
    tile("Rows per second", job.rows_per_second === null ? "–" : count(job.rows_per_second), "committed in the last minute"),
    tile("Backlog", backlogText(job.backlog), make("span", { title: perSource ?? "" }, drain(job) && `${drain(job)}; `, measured, [waits, perSource].filter(Boolean).map((each) => `; ${each}`).join(""))),
    tile("Event-time lag", lagText(job.backlog), eventTimeWords(times, job.backlog_ms === null ? "never measured" : age(job.backlog_ms))),
    tile("Newest epoch", job.epoch ? `#${job.epoch.epoch}` : "none yet", job.epoch ? make("span", {}, age(job.epoch.committed_ms), `, took ${milliseconds(job.epoch.duration_ms)}`) : ""),
    tile("Newest savepoint", job.savepoint ? age(job.savepoint.created_ms) : "none", job.savepoint?.reason || (job.savepoint ? `epoch ${job.savepoint.epoch}` : "take one before any change")),
    isQuery(job)
      ? tile("State partitions", String(job.parallelism), make("span", { title: job.checkpoint }, "fixed by its checkpoint until a rescale, also for shuffles without state"))
      : tile("Parallelism", String(job.parallelism), `of max ${job.max_parallelism}`),
    tile("Workers", workers ? `${workers.ready} ready` : "–", workers ? workers.message || `${workers.desired} desired` : "the job has no resizable cluster"),
    tile("Lease", job.lease ? "held" : "free", job.lease ? make("span", {}, "by ", run(job.lease.owner, job.lease.page)) : "a rescale may start"),
  ];
}

/** Name a run, with a link if it is a DAG run. */
const run = (id, page) => (page === null ? id : airflowLink(AIRFLOW + page, id));

function rescaleRows(runs) {
  return runs.map((each) => [
    run(each.run_id, each.page),
    condition(each.state, each.state === "running" ? "rescaling" : each.state),
    each.artifact === null ? `${each.from_parallelism} → ${each.to_parallelism}` : make("span", { title: each.artifact }, "upgrade"),
    each.to_workers === null ? "–" : `${each.from_workers} → ${each.to_workers}`,
    each.method,
    age(each.created_ms),
    steps(each),
    make("td", { class: "wide" }, folded(each.error || each.reason, `run ${each.run_id}`)),
  ]);
}

function steps({ steps: taken, state }) {
  const texts = taken.map((step) => {
    if (step.ended_ms === null) return `${step.name}: ${state === "running" ? "running" : "not finished"}`;
    return `${step.name}: ${since(step.ended_ms - step.started_ms)}`;
  });
  return make("td", { class: "steps" }, texts.join(", "));
}

function savepointRows(savepoints) {
  return savepoints.map((each) => [
    age(each.created_ms), String(each.epoch), String(each.lineage), String(each.parallelism),
    each.bytes === null ? "–" : bytes(each.bytes), each.took_ms === null ? "–" : milliseconds(each.took_ms), make("td", { class: "wide" }, each.reason), make("td", { class: "path" }, each.path),
  ]);
}

function partitionRows(partitions) {
  return partitions.map((each) => [
    `${each.topic}-${each.partition}`, each.source, each.records === null ? "unknown" : count(each.records), each.oldest_ms === null ? "–" : age(each.oldest_ms), count(each.position),
  ]);
}

/** An integer exactly, another number with six digits. */
const figure = (value) => value.toLocaleString("en", Number.isInteger(value) ? {} : { maximumSignificantDigits: 6 });

/** What a metric of a function stands at. */
function metricWords({ kind, count: values, total, least, largest, half, most }) {
  if (kind === "counter") return figure(total);
  if (!values) return "no value yet";
  if (kind === "gauge") return values === 1 ? figure(largest) : `${figure(least)} to ${figure(largest)} in ${values} subtasks`;
  return `${figure(values)} values, mean ${figure(total / values)}, half at most ${figure(half)}, 99 % at most ${figure(most)}`;
}

function decisionRows(decisions) {
  return decisions.map((each) => [
    age(each.decided_ms),
    condition(each.state),
    `${each.from_parallelism} → ${each.to_parallelism}`,
    each.to_workers === null ? "–" : `${each.from_workers} → ${each.to_workers}`,
    each.run_id === null ? "–" : run(each.run_id, each.page),
    make("td", { class: "wide" }, [each.reason, each.outcome].filter(Boolean).join("; ")),
  ]);
}

function policyWords(policy) {
  if (policy === null) return ["The job has no policy, so it is never rescaled automatically. To set one, see ", make("code", {}, "statecore policy --help"), "."];
  if (!policy.enabled) return ["The job's policy is off."];
  if (policy.looked_ms === null) return ["The policy has not been evaluated yet. Check that the DAG autoscale is not paused."];
  const diagnosis = policy.diagnosis && condition(policy.diagnosis.replaceAll("_", " "), AILMENTS[policy.diagnosis] ?? "failed");
  const observes = policy.state === "observes" ? "The policy observes: its decisions change nothing. " : "";
  return [...(diagnosis ? [diagnosis, " "] : []), observes, "Evaluated ", age(policy.looked_ms), ": ", ...prose(policy.finding)];
}

function generationRows(generations) {
  return generations.map((each) => [
    make("a", { href: `log?${new URLSearchParams({ name, generation: each.generation })}`, title: "Driver log" }, String(each.generation)),
    condition(each.state),
    String(each.parallelism),
    age(each.started_ms),
    each.ended_ms === null ? make("span", {}, "heartbeat ", age(each.heartbeat_ms)) : make("span", { title: bothClocks(each.ended_ms) }, `ran ${since(each.ended_ms - each.started_ms)}, until ${utc(each.ended_ms)}`),
  ]);
}

/** What has failed, drivers and runs, the newest first. */
function failureRows({ generations, rescales }) {
  const drivers = generations.filter((each) => each.error !== null).map((each) => ({
    atMs: each.ended_ms ?? each.heartbeat_ms, text: each.error ?? "", key: `generation ${each.generation}`,
    what: make("a", { href: `log?${new URLSearchParams({ name, generation: each.generation })}`, title: "Driver log" }, `driver, generation ${each.generation}`),
  }));
  const runs = rescales.filter((each) => each.state === "failed").map((each) => ({
    atMs: each.updated_ms, text: each.error ?? "", key: `failed ${each.run_id}`, what: make("span", {}, "run ", run(each.run_id, each.page)),
  }));
  return [...drivers, ...runs].sort((one, other) => other.atMs - one.atMs).map((each) => [
    age(each.atMs), each.what, make("td", { class: "wide" }, folded(each.text, each.key)),
  ]);
}

function showJob(answer) {
  const { job } = answer;
  renew(byId("condition"), job.condition, () => [job.condition]);
  byId("condition").dataset.condition = colour(job);
  const well = job.condition === "stopped" ? "Stopped, as it should be; nothing to do." : "Healthy; nothing to do.";
  renew(byId("advice"), [job.findings, well], () => (job.findings.length ? job.findings.map((each) => finding(job.name, each)) : [make("p", {}, well)]));
  renew(byId("tiles"), [job, answer.sources, answer.source_times, dataflow?.drained_in_ms, dataflow?.growth], () => tiles(answer));
  byId("functions").hidden = !answer.metrics.length;
  renew(byId("metrics"), answer.metrics, () =>
    table(["Operator", "Metric", "Kind", "Value"], answer.metrics.map((each) => [each.uid, each.name, each.kind, metricWords(each)]), ""));
  byId("topics").hidden = !answer.partitions.length;
  byId("topics-shown").textContent = answer.partitions.length < answer.partitions_total ? `the ${answer.partitions.length} fullest of ${answer.partitions_total}` : "";
  renew(byId("partitions"), answer.partitions, () =>
    table(["Partition", "Source", "Records that wait", "The oldest", "Next offset"], partitionRows(answer.partitions), ""));
  renew(byId("rescales"), answer.rescales, () =>
    table(["Run", "State", "Parallelism", "Workers", "Method", "Started", "Steps", "Reason"], rescaleRows(answer.rescales), "No rescale yet."));
  renew(byId("savepoints"), answer.savepoints, () =>
    table(["Taken", "Epoch", "Lineage", "Parallelism", "Size", "Took", "Reason", "Path"], savepointRows(answer.savepoints), "No savepoint yet. A rescale takes one; so does the DAG savepoints."));
  renew(byId("policy"), answer.policy, () => policyWords(answer.policy));
  renew(byId("decisions"), answer.decisions, () =>
    table(["Decided", "State", "Parallelism", "Workers", "Run", "Reason"], decisionRows(answer.decisions), "No decision yet."));
  byId("decisions").hidden = answer.policy === null && !answer.decisions.length;
  renew(byId("generations"), answer.generations, () =>
    table(["Generation", "State", "Parallelism", "Started", "Ended"], generationRows(answer.generations), "The job has never run."));
  renew(byId("failures"), [answer.generations, answer.rescales], () =>
    table(["When", "What", "Why"], failureRows(answer), "None of the newest drivers and runs has failed."));
  const spark = byId("spark");
  spark.hidden = answer.ui_url === null;
  if (answer.ui_url !== null) spark.href = answer.ui_url;
  if (isQuery(job)) showState(answer);
  changes.update(answer);
  allowLookup(answer);
}

/** State of a query of Spark's own, which counts no key groups. */
function showState({ job, state, watermark_ms: watermark }) {
  byId("state-title").textContent = "State of each operator";
  byId("lookup").hidden = true;
  const rows = state.map((each) => [each.operator, count(each.rows), bytes(each.memory_bytes), each.disk_bytes === null ? "–" : bytes(each.disk_bytes)]);
  renew(byId("spread"), [job.checkpoint, state, watermark], () => [
    make("p", { class: "wide" }, "Checkpoint: ", make("code", {}, job.checkpoint), watermark === null ? "" : `; watermark ${utc(watermark)}`),
    make("div", { class: "scroll listed", tabIndex: 0 }, ...table(["Operator", "Rows", "Memory", "On disk"], rows, "No batch with state yet.")),
  ]);
}

function spreadOf(operator) {
  const rows = operator.rows_of_subtasks;
  const fullest = rows.indexOf(Math.max(...rows));
  const words = `${operator.uid}: ${count(rows.reduce((sum, each) => sum + each, 0))} rows; the fullest subtask is ${fullest} with ${count(rows[fullest])}, ${operator.skew.toFixed(2)} times the average; counted `;
  const strip = make("div", { class: "strip", "data-uid": operator.uid });
  return [make("p", {}, words, age(operator.measured_ms)), strip];
}

function showSpreads({ operators }) {
  const element = byId("spread");
  renew(element, operators, () =>
    operators.length ? operators.flatMap(spreadOf) : [make("p", { class: "placeholder" }, "No counts yet. A driver counts in its first epoch, then every 30 seconds. Only keyed operators have keyed state.")]);
  operators.forEach((operator, place) => drawSpread(element.querySelectorAll(".strip")[place], operator));
}

function draw() {
  if (series) drawSeries(series);
  if (spreads) showSpreads(spreads);
}

function showDataflow() {
  if (dataflow === null) return;
  const { nodes } = dataflow;
  const isNew = renew(byId("dataflow"), nodes, () => (nodes.length ? [] : [make("p", { class: "placeholder" }, "Not known yet. A driver records its dataflow when it starts; a query of Spark’s own with its first batch.")]));
  if (isNew && nodes.length) drawDataflow(byId("dataflow"), dataflow);
  epochs.show(dataflow.epochs);
}

async function load() {
  const [answer, flow] = await Promise.all([ask(`api/job?${query}`), ask(`api/dataflow?${query}`), loadSeries()]);
  setClock(answer.now_ms);
  dataflow = flow;
  showJob(answer);
  showDataflow();
  if (Date.now() - definitionMs >= DEFINITION_EVERY_MS) {
    const definition = await ask(`api/definition?${query}`);
    definitionMs = Date.now();
    showDefinition(definition, answer.policy);
    showAudit(definition);
  }
  if (!isQuery(answer.job) && Date.now() - spreadsMs >= SPREAD_EVERY_MS) {
    spreads = await ask(`api/key-groups?${query}`);
    spreadsMs = Date.now();
    showSpreads(spreads);
  }
}

async function loadSeries() {
  const wanted = zoom ?? { minutes };
  const key = JSON.stringify(wanted);
  if (key === seriesKey && (zoom || Date.now() - seriesMs < Math.min(series.step_ms, SERIES_EVERY_MS))) return;
  const loaded = await ask(`api/series?${query}&${new URLSearchParams(wanted)}`);
  if (JSON.stringify(zoom ?? { minutes }) !== key) return;
  series = loaded;
  seriesMs = Date.now();
  seriesKey = key;
  drawSeries(series);
}

function showRange() {
  for (const each of byId("spans").children) each.setAttribute("aria-pressed", String(zoom === null && Number(each.dataset.minutes) === minutes));
  byId("unzoom").hidden = zoom === null;
  reload();
}

leadOut(byId("spark"));
const changes = new Changes(name, new ChangeDialog(name, () => reload()));
const reload = keepLoading(load, EVERY_MS);

for (const [value, label] of Object.entries(SPANS)) {
  const button = make("button", { type: "button", textContent: label, "data-minutes": value });
  button.addEventListener("click", () => {
    minutes = Number(value);
    zoom = null;
    showRange();
  });
  byId("spans").append(button);
}
byId("unzoom").addEventListener("click", () => {
  zoom = null;
  showRange();
});
onZoom((fromMs, untilMs) => {
  zoom = fromMs === null ? null : { minutes: Math.min(FURTHEST, Math.max(1, Math.ceil((untilMs - fromMs) / 60_000))), until_ms: Math.round(untilMs) };
  showRange();
});
byId("clock").textContent = `UTC${clockWords()}.`;
showRange();
document.addEventListener("themechange", draw);
