// The dialog of a change: fields, the plan of what will happen, and the submission.
//
// A change that a DAG makes gets its fields and help texts from the DAG's params, and is submitted to Airflow's own API,
// as the Trigger form does. Any other change submits itself.
import { AIRFLOW, airflowLink, ask, byId, make, Refusal, runPage } from "./page.js";

const SETTLE_MS = 400;
const POLL_MS = 2_000;
const PLAN_TIMEOUT_MS = 180_000;
const FINAL_STATES = ["success", "failed"];

/**
 * A change has:
 *   title     heading of the dialog
 *   verb      label of the button
 *   dag       id of the DAG that makes it, with
 *     asked     the params that are fields
 *     initial   values of fields by name, instead of the DAG's defaults
 *     planned   the params that the plan depends on
 *   plan      (values) => address of the plan, if the server makes it
 *   show      (plan) => elements
 *   submit    () => promise, for a change that no DAG makes
 */
export class ChangeDialog {
  #name;
  #reload;
  #change = null;
  #params = {};
  #isPaused = false;
  #planned = null; // values of the plan that is shown
  #timer = null;
  #watching = null;

  constructor(name, reload) {
    this.#name = name;
    this.#reload = reload;
    byId("cancel").addEventListener("click", () => byId("dialog").close());
    byId("dialog").addEventListener("close", () => this.#forget());
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    byId("fields").addEventListener("input", () => this.#changed());
  }

  async open(change) {
    this.#change = change;
    byId("dialog-title").textContent = change.title;
    byId("submit").textContent = change.verb;
    byId("submit").disabled = true;
    byId("outcome").replaceChildren();
    byId("fields").replaceChildren();
    byId("plan").replaceChildren(make("p", { class: "placeholder" }, "Loading…"));
    byId("dialog").showModal();
    // Not on a button: Return must do nothing before there is a plan.
    byId("dialog-title").focus();
    try {
      if (change.dag) {
        const details = await ask(`${AIRFLOW}api/v2/dags/${change.dag}/details`);
        if (this.#change !== change) return;
        this.#params = details.params ?? {};
        this.#isPaused = details.is_paused;
        byId("fields").replaceChildren(...change.asked.filter((each) => each in this.#params).map((each) => this.#field(each)));
      }
      byId("fields").querySelector("input, select")?.focus();
      this.#changed();
    } catch (error) {
      if (this.#change === change) this.#refused(error);
    }
  }

  #field(param) {
    const { schema, description, value } = this.#params[param];
    const types = [schema.type].flat();
    const optional = types.includes("null");
    const shared = { id: `field-${param}`, name: param };
    const initial = this.#change.initial?.[param] ?? value ?? "";
    let input;
    if (schema.enum) {
      const shown = schema.values_display ?? {};
      input = make("select", shared, ...schema.enum.map((each) => make("option", { value: each, selected: each === value }, shown[each] ?? each)));
    } else if (types.includes("boolean")) {
      input = make("input", { ...shared, type: "checkbox", checked: value === true });
    } else if (types.includes("integer") || types.includes("number")) {
      const step = types.includes("integer") ? "1" : "any";
      input = make("input", { ...shared, type: "number", step, min: String(schema.minimum ?? 0), required: !optional, value: String(initial) });
    } else {
      input = make("input", { ...shared, type: "text", required: !optional && (schema.minLength ?? 0) > 0, value: String(initial) });
    }
    const label = make("label", { htmlFor: shared.id }, schema.title ?? param);
    return make("div", { class: "field", "data-param": param }, label, input, make("small", {}, description ?? schema.description ?? ""));
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
    const planned = this.#change.planned ?? [];
    const asked = Object.fromEntries(planned.filter((each) => each in values).map((each) => [each, values[each]]));
    if (JSON.stringify(asked) === JSON.stringify(this.#planned)) return;
    this.#planned = asked;
    byId("submit").disabled = true;
    byId("outcome").replaceChildren();
    clearTimeout(this.#timer);
    if (!byId("form").checkValidity()) {
      const { labels, validationMessage } = byId("form").querySelector(":invalid");
      this.#showPlan([make("p", { class: "placeholder" }, `${labels[0].textContent}: ${validationMessage}`)]);
      return;
    }
    if (!this.#change.plan) {
      this.#showPlan(this.#change.show());
      byId("submit").disabled = false;
      return;
    }
    this.#showPlan([make("p", { class: "placeholder" }, "Computing the plan…")]);
    this.#timer = setTimeout(() => this.#plan(asked), SETTLE_MS);
  }

  async #plan(asked) {
    try {
      const plan = await ask(this.#change.plan(asked), { timeoutMs: PLAN_TIMEOUT_MS });
      if (this.#planned !== asked) return;
      const refusal = plan.refusal === null ? null : make("p", { class: "refusal", role: "alert" }, make("strong", {}, "Would be refused: "), plan.refusal);
      const paused = this.#isPaused ? make("p", { class: "warning" }, `The DAG ${this.#change.dag} is paused; a run waits until it is unpaused.`) : null;
      this.#showPlan([refusal, paused, ...this.#change.show(plan)]);
      byId("submit").disabled = plan.refusal !== null;
    } catch (error) {
      if (this.#planned === asked) this.#refused(error);
    }
  }

  #showPlan(elements) {
    byId("plan").replaceChildren(...elements.filter((each) => each !== null));
  }

  #refused(error) {
    if (!(error instanceof Refusal)) console.error(error);
    this.#showPlan([make("p", { class: "refusal", role: "alert" }, make("strong", {}, "Not possible. "), error.message)]);
  }

  async #submit() {
    if (byId("submit").disabled) return;
    const change = this.#change;
    byId("submit").disabled = true;
    byId("outcome").textContent = "Submitting…";
    try {
      if (change.submit) {
        await change.submit();
        if (this.#change === change) byId("dialog").close();
      } else {
        const run = await send(`${AIRFLOW}api/v2/dags/${change.dag}/dagRuns`, { logical_date: null, conf: { job: this.#name, ...this.#values() } });
        this.#watch(change, run);
      }
      this.#reload();
    } catch (error) {
      if (this.#change !== change) return;
      byId("outcome").replaceChildren(make("strong", {}, "Refused. "), error.message);
      byId("submit").disabled = false;
    }
  }

  /** Show the state of the run and follow it until it ends, or until the dialog is closed. */
  #watch(change, run) {
    if (this.#change !== change) return;
    const id = run.dag_run_id;
    const paused = this.#isPaused && run.state === "queued" ? " The DAG is paused: the run starts once it is unpaused." : "";
    const failed = run.state === "failed" ? " Open the run for the cause." : "";
    byId("outcome").replaceChildren("Submitted as ", airflowLink(runPage(change.dag, id), id), ": ", make("strong", { "data-run-state": run.state }, run.state), `.${paused}${failed}`);
    if (FINAL_STATES.includes(run.state)) return;
    this.#watching = setTimeout(async () => {
      const newer = await ask(`${AIRFLOW}api/v2/dags/${change.dag}/dagRuns/${encodeURIComponent(id)}`).catch(() => run);
      this.#watch(change, newer);
    }, POLL_MS);
  }

  #forget() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watching);
    this.#planned = null;
    this.#change = null;
  }
}

/** Send JSON. */
export function send(address, value) {
  return ask(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });
}
