// The dialog that shows the plan of a rescale and submits it to Airflow's own API, as the Trigger form does.
// Fields and help texts come from the DAG's params.
import { AIRFLOW, airflowLink, ask, byId, bytes, count, isQuery, make, Refusal, runPage, since } from "./page.js";

const DAG = `${AIRFLOW}api/v2/dags/rescale`;
const ASKED = ["parallelism", "workers", "method", "max_parallelism", "approval", "reason"];
const PLANNED = ["parallelism", "workers", "method", "max_parallelism"];
const SETTLE_MS = 400;
const POLL_MS = 2_000;
const PLAN_TIMEOUT_MS = 180_000;
const FINAL_STATES = ["success", "failed"];

export class RescaleDialog {
  #name;
  #job = null;
  #params = {};
  #isPaused = false;
  #planned = null; // values of the plan that is shown
  #timer = null;
  #watching = null;

  constructor(name) {
    this.#name = name;
    byId("cancel").addEventListener("click", () => byId("dialog").close());
    byId("dialog").addEventListener("close", () => this.#forget());
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    byId("fields").addEventListener("input", () => this.#changed());
  }

  /** Set the job's current figures. */
  update(job) {
    this.#job = job;
  }

  async open() {
    byId("dialog-title").textContent = `Rescale ${this.#name}`;
    byId("outcome").replaceChildren();
    byId("plan").replaceChildren(make("p", { class: "placeholder" }, "Loading the DAG rescale…"));
    byId("fields").replaceChildren();
    byId("submit").disabled = true;
    byId("dialog").showModal();
    try {
      const details = await ask(`${DAG}/details`);
      this.#params = details.params ?? {};
      this.#isPaused = details.is_paused;
      byId("fields").replaceChildren(...ASKED.filter((each) => this.#isAsked(each)).map((each) => this.#field(each)));
      this.#changed();
    } catch (error) {
      this.#refused(error);
    }
  }

  #isAsked(param) {
    // A query of Spark's own has one method, and no key groups.
    if (isQuery(this.#job) && ["method", "max_parallelism"].includes(param)) return false;
    return param in this.#params && (param !== "workers" || this.#job.workers !== null);
  }

  #field(param) {
    const { schema, description, value } = this.#params[param];
    const types = [schema.type].flat();
    const shared = { id: `field-${param}`, name: param };
    let input;
    if (schema.enum) {
      const shown = schema.values_display ?? {};
      input = make("select", shared, ...schema.enum.map((each) => make("option", { value: each, selected: each === value }, shown[each] ?? each)));
    } else if (types.includes("boolean")) {
      input = make("input", { ...shared, type: "checkbox", checked: value === true });
    } else if (types.includes("integer")) {
      input = make("input", { ...shared, type: "number", min: String(schema.minimum ?? 1), required: !types.includes("null"), value: String(this.#initial(param) ?? "") });
    } else {
      input = make("input", { ...shared, type: "text", value: "" });
    }
    const label = make("label", { htmlFor: shared.id }, schema.title ?? param);
    return make("div", { class: "field", "data-param": param }, label, input, make("small", {}, description ?? schema.description ?? ""));
  }

  /** Initial value of a field: the job's present size. */
  #initial(param) {
    if (param === "parallelism") return this.#job.parallelism;
    return param === "workers" ? this.#job.workers.desired : null;
  }

  /** Return the values of filled fields; the DAG's defaults apply to empty ones. */
  #values() {
    const values = {};
    for (const input of byId("fields").querySelectorAll("input, select")) {
      if (input.closest(".field").hidden) continue;
      if (input.type === "checkbox") values[input.name] = input.checked;
      else if (input.type === "number") {
        if (input.value !== "") values[input.name] = Number(input.value);
      } else if (input.value !== "") values[input.name] = input.value;
    }
    return values;
  }

  #changed() {
    const groups = byId("fields").querySelector("[data-param=max_parallelism]");
    if (groups) groups.hidden = this.#values().method !== "rewrite";
    const values = this.#values();
    const asked = Object.fromEntries(PLANNED.filter((each) => each in values).map((each) => [each, values[each]]));
    if (JSON.stringify(asked) === JSON.stringify(this.#planned)) return;
    this.#planned = asked;
    byId("submit").disabled = true;
    byId("outcome").replaceChildren();
    clearTimeout(this.#timer);
    if (!byId("form").checkValidity()) {
      this.#refused(new Refusal(byId("form").querySelector(":invalid").validationMessage));
      return;
    }
    byId("plan").replaceChildren(make("p", { class: "placeholder" }, "Computing the plan…"));
    this.#timer = setTimeout(() => this.#plan(asked), SETTLE_MS);
  }

  async #plan(asked) {
    try {
      const plan = await ask(`api/plan?${new URLSearchParams({ name: this.#name, ...asked })}`, { timeoutMs: PLAN_TIMEOUT_MS });
      if (this.#planned !== asked) return;
      byId("plan").replaceChildren(...planned(plan, this.#isPaused));
      byId("submit").disabled = plan.refusal !== null;
    } catch (error) {
      if (this.#planned === asked) this.#refused(error);
    }
  }

  #refused(error) {
    if (!(error instanceof Refusal)) console.error(error);
    byId("plan").replaceChildren(make("p", { class: "refusal", role: "alert" }, make("strong", {}, "Not possible. "), error.message));
  }

  async #submit() {
    if (byId("submit").disabled) return;
    byId("submit").disabled = true;
    byId("outcome").textContent = "Submitting…";
    try {
      const run = await ask(`${DAG}/dagRuns`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ logical_date: null, conf: { job: this.#name, ...this.#values() } }),
      });
      this.#watch(run);
    } catch (error) {
      byId("outcome").replaceChildren(make("strong", {}, "Refused. "), error.message);
      byId("submit").disabled = false;
    }
  }

  /** Show the state of the run and follow it until it ends. */
  #watch(run) {
    const id = run.dag_run_id;
    const paused = this.#isPaused && run.state === "queued" ? " The DAG is paused: the run starts once it is unpaused." : "";
    const failed = run.state === "failed" ? " Open the run for the cause." : "";
    byId("outcome").replaceChildren("Submitted as ", airflowLink(runPage(id), id), ": ", make("strong", { "data-run-state": run.state }, run.state), `.${paused}${failed}`);
    if (FINAL_STATES.includes(run.state)) return;
    this.#watching = setTimeout(async () => {
      try {
        this.#watch(await ask(`${DAG}/dagRuns/${encodeURIComponent(id)}`));
      } catch {
        this.#watch(run);
      }
    }, POLL_MS);
  }

  #forget() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watching);
    this.#planned = null;
  }
}

function planned(plan, isPaused) {
  const parts = [];
  if (plan.refusal) parts.push(make("p", { class: "refusal", role: "alert" }, make("strong", {}, "Would be refused: "), plan.refusal));
  if (isPaused) parts.push(make("p", { class: "warning" }, "The DAG rescale is paused; a run waits until it is unpaused."));
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
  const headings = ["Subtask", "Key groups", "Files", "Rows", "Bytes", ""].map((each) => make("th", { scope: "col", class: "number" }, each));
  return make("div", { class: "scroll shares" }, make("table", {}, make("thead", {}, make("tr", {}, ...headings)), make("tbody", {}, ...rows)));
}
