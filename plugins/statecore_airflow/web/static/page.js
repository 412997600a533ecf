// Shared by all pages: build elements, query the server, show the age of data, link to Airflow's own pages.

/** Airflow's address, with a trailing slash. */
export const AIRFLOW = new URL("../../", import.meta.url).href;

const TIMEOUT_MS = 15_000;
const TICK_MS = 1_000;

/** Make an element; strings become text nodes, so markup in a job's name is not rendered. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("data-") || name.startsWith("aria-") || name === "role" || name === "colspan") {
      element.setAttribute(name, value);
    } else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** An error with a message for the user; `isLogin` if the login has expired. */
export class Refusal extends Error {
  constructor(message, isLogin = false) {
    super(message);
    this.isLogin = isLogin;
  }
}

/** Fetch JSON; throw a Refusal with the server's message, or if the server does not answer. */
export async function ask(url, options = {}) {
  let response;
  try {
    response = await fetch(url, { ...options, signal: AbortSignal.timeout(options.timeoutMs ?? TIMEOUT_MS) });
  } catch (error) {
    const what = error.name === "TimeoutError" ? "does not answer" : "cannot be reached";
    throw new Refusal(`Airflow's API server ${what}. The jobs run on without it; this page retries automatically.`);
  }
  if (response.ok) return response.json();
  if (response.status === 401) throw new Refusal("Your login has expired. Log in again, then return to this page.", true);
  if (response.status === 403) throw new Refusal("You have no permission for this. Reading needs the DAG rescale, a change its own DAG, and with permissions per job both need the job, too.");
  throw new Refusal(await reason(response));
}

async function reason(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((each) => `${each.loc?.at(-1)}: ${each.msg}`).join("; ");
    return JSON.stringify(detail);
  } catch {
    return `Airflow answered ${response.status}. See the API server's log for the cause.`;
  }
}

/**
 * Call `load` now and every `everyMs` (ten times slower in a hidden tab); on an error, keep the last data visible.
 * Returns a function that reloads at once.
 */
export function keepLoading(load, everyMs) {
  let timer = null;
  let newestMs = null;
  let isLoading = false;
  let isWanted = false; // reload once the running load ends
  const trouble = byId("trouble");

  async function once() {
    clearTimeout(timer);
    if (isLoading) {
      isWanted = true;
      return;
    }
    isLoading = true;
    isWanted = false;
    try {
      await load();
      newestMs = Date.now();
      trouble.hidden = true;
      document.body.classList.remove("bare");
    } catch (error) {
      if (!(error instanceof Refusal)) console.error(error);
      const login = error.isLogin ? make("a", { href: location.href, class: "button" }, "Log in") : null;
      trouble.replaceChildren(make("strong", {}, newestMs ? "Out of date. " : "No data. "), error.message, " ", login ?? "");
      trouble.hidden = false;
      // Before the first answer there is no data to keep visible.
      document.body.classList.toggle("bare", newestMs === null);
    } finally {
      isLoading = false;
      showFreshness(newestMs, trouble.hidden);
      timer = setTimeout(once, isWanted ? 0 : document.hidden ? everyMs * 10 : everyMs);
    }
  }

  setInterval(() => showFreshness(newestMs, trouble.hidden), TICK_MS);
  document.addEventListener("visibilitychange", () => document.hidden || once());
  once();
  return once;
}

function showFreshness(newestMs, isWell) {
  const shown = byId("freshness");
  if (newestMs === null) shown.textContent = "";
  else shown.textContent = isWell ? `live, ${since(Date.now() - newestMs)} ago` : `as of ${since(Date.now() - newestMs)} ago`;
  shown.classList.toggle("old", !isWell);
}

/** Replace an element's content only if `facts` changed, and return whether; focus stays on the same `data-focus`. */
export function renew(element, facts, build) {
  const key = JSON.stringify(facts);
  if (element.dataset.key === key) return false;
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  element.replaceChildren(...build());
  element.dataset.key = key;
  if (focused !== undefined) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  return true;
}

// Ages use the server's clock: the browser's may be wrong.
let aheadMs = 0;

export function setClock(nowMs) {
  aheadMs = nowMs - Date.now();
  tick();
}

export const nowMs = () => Date.now() + aheadMs;

/** An age that updates itself. */
export function age(atMs) {
  const element = make("time", {
    dateTime: new Date(atMs).toISOString(),
    title: bothClocks(atMs),
    "data-at-ms": String(atMs),
  });
  element.textContent = `${since(nowMs() - atMs)} ago`;
  return element;
}

function tick() {
  for (const element of document.querySelectorAll("time[data-at-ms]")) {
    const text = `${since(nowMs() - Number(element.dataset.atMs))} ago`;
    if (element.textContent !== text) element.textContent = text;
  }
}
setInterval(tick, TICK_MS);

/** A time in the format of logs. */
export const utc = (atMs) => `${new Date(atMs).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** A time by the format of logs, and by the clock of who reads it. */
export function bothClocks(atMs) {
  const at = new Date(atMs);
  if (at.getTimezoneOffset() === 0) return utc(atMs);
  return `${utc(atMs)}, ${at.toLocaleString("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" })} by your clock`;
}

/** A duration in at most two units. */
export function since(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** A short duration, such as an epoch's. */
export function milliseconds(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : since(ms);
}

export function count(number) {
  return Math.round(number).toLocaleString("en");
}

export function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

/** A backlog in records if known, else in files and bytes. */
export function backlogText(backlog) {
  if (backlog === null) return "–";
  if (backlog.records !== null) return `${count(backlog.records)} records`;
  const parts = [];
  if (backlog.files !== null) parts.push(`${count(backlog.files)} files`);
  if (backlog.bytes !== null) parts.push(bytes(backlog.bytes));
  return parts.join(", ") || "–";
}

export const DAY_MS = 86_400_000;

/** The event-time lag; of days, say what makes it. */
export function lagText(backlog) {
  const ms = backlog?.event_time_lag_ms ?? null;
  if (ms === null) return "–";
  if (ms < DAY_MS) return since(ms);
  const waits = [backlog.records, backlog.files, backlog.bytes].some(Boolean);
  return `${waits ? "replaying, " : ""}events ${count(Math.floor(ms / DAY_MS))} days old`;
}

/** A coloured state label; `kind` borrows the colour of another state. */
export function condition(word, kind = word) {
  return make("span", { class: "condition", "data-condition": kind }, word);
}

const FOLDED = 240; // characters of a long line that are shown
const unfolded = new Set(); // findings change every second, and stay open

/** What is found about a job and what to do; a long text folds. */
export function finding(job, { found, todo, alert, severity, is_new: isNew }) {
  const text = todo ? `${found}: ${todo}` : found;
  const name = alert && make("a", { href: `runbook#${alert}`, class: "condition", "data-condition": severity, title: `${severity}; what it means and what to do` }, alert.replaceAll("_", " "));
  const mark = isNew ? make("span", { class: "new", title: "Too new to be sent to anybody; it may pass by itself" }, "new") : null;
  if (text.length <= FOLDED) return make("p", { class: "to-do" }, name, name && " ", mark, mark && " ", ...prose(text));
  const cut = text.lastIndexOf(" ", FOLDED);
  // Half a command would be none.
  const head = text.slice(0, cut).replaceAll("`", "");
  const key = `${job} ${alert ?? found.split(/\d/)[0]}`;
  return unfoldable(key, make("summary", { "data-focus": key }, name, name && " ", mark, mark && " ", `${head} …`), text, "to-do");
}

/** The colour of a job: that of its worst finding, else that of its driver's condition. */
export const colour = (job) => job.severity ?? job.condition;

/** Render text with commands between backticks. */
export function prose(text) {
  return text.split("`").map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

/** A table of cells by row, or a sentence where there is none. */
export function table(headings, rows, empty) {
  if (!rows.length) return [make("p", { class: "placeholder" }, empty)];
  const head = make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)));
  return [make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => (cell?.tagName === "TD" ? cell : make("td", {}, cell ?? ""))))))) ];
}

/** Text that folds where it is long. */
export function folded(text, focus) {
  if (text.length <= FOLDED) return make("span", {}, ...prose(text));
  const cut = text.lastIndexOf(" ", FOLDED);
  // Half a command would be none.
  return unfoldable(focus, make("summary", { "data-focus": focus }, `${text.slice(0, cut).replaceAll("`", "")} …`), text);
}

function unfoldable(key, summary, text, kind = "") {
  const shown = make("details", { class: kind, open: unfolded.has(key) }, summary, make("p", {}, ...prose(text)));
  shown.addEventListener("toggle", () => (shown.open ? unfolded.add(key) : unfolded.delete(key)));
  return shown;
}

/**
 * A link to one of Airflow's own pages. Airflow shows this page in a sandboxed frame that may not navigate the window,
 * so the parent page, which has the same origin, follows the link instead.
 */
export function airflowLink(href, ...children) {
  return leadOut(make("a", { href }, ...children));
}

/** Have the parent page follow a link. */
export function leadOut(link) {
  link.addEventListener("click", (event) => {
    if (window.parent === window) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = link.href;
    outside.rel = link.rel;
    if (link.target || event.ctrlKey || event.metaKey || event.shiftKey) outside.target = "_blank";
    outside.click();
  });
  return link;
}

export const runPage = (dag, run) => `${AIRFLOW}dags/${dag}/runs/${encodeURIComponent(run)}`;

/** Return whether a job is a query of Spark's own. */
export const isQuery = (job) => job.checkpoint !== null;
