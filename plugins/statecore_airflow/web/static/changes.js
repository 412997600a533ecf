// The buttons of a job's changes, each with the permission of its DAG, and what their dialogs ask.
import { send } from "./dialog.js";
import { byId, make } from "./page.js";
import { rescale } from "./rescale.js";

const lines = (plan) => plan.lines.map((line) => make("p", {}, line));

/** Return a change that a DAG makes, whose plan is sentences. */
function byDag(name, dag, verb, { asked = [], planned = [], ...more } = {}) {
  return {
    title: `${verb}: ${name}`, verb, dag, asked, planned,
    plan: (values) => `api/plan/${dag}?${new URLSearchParams({ name, ...values })}`, show: lines, ...more,
  };
}

const sizes = ({ workers }) => ["parallelism", ...(workers === null ? [] : ["workers"])];

/** Buttons by id, with the DAG whose permission each needs and the change that it opens. */
const BUTTONS = {
  start: ["start", (name, { job }) => byDag(name, "start", "Start", { asked: [...sizes(job), "accept_lost_records"], planned: sizes(job) })],
  stop: ["stop", (name) => byDag(name, "stop", "Stop with savepoint", { asked: ["reason"] })],
  savepoint: ["savepoints", (name) => byDag(name, "savepoints", "Take savepoint")],
  "catch-up": ["catch_up", (name, { job }) => byDag(name, "catch_up", "Catch up", {
    asked: [...sizes(job), "within_minutes", "reason"], planned: [...sizes(job), "within_minutes"],
  })],
  upgrade: ["upgrade", (name) => byDag(name, "upgrade", "Upgrade", { asked: ["artifact", "reason"], planned: ["artifact"] })],
  rescale: ["rescale", (name, { job }) => rescale(name, job)],
};

/** The buttons; `update` with each answer of the server. */
export class Changes {
  #name;
  #dialog;
  #answer = null;

  constructor(name, dialog) {
    this.#name = name;
    this.#dialog = dialog;
    for (const [id, [, change]] of Object.entries(BUTTONS)) {
      byId(id).addEventListener("click", () => dialog.open(change(name, this.#answer)));
    }
    byId("abort").addEventListener("click", () => dialog.open(this.#abort()));
    byId("policy-switch").addEventListener("click", () => dialog.open(this.#policySwitch()));
  }

  update(answer) {
    this.#answer = answer;
    const { policy } = answer;
    const isStopped = answer.desired_state === "stopped";
    byId("start").hidden = !isStopped;
    byId("stop").hidden = isStopped;
    for (const [id, [dag]] of Object.entries(BUTTONS)) {
      const isAllowed = answer.triggerable.includes(dag);
      byId(id).disabled = !isAllowed;
      byId(id).title = isAllowed ? "Shows first what will happen" : `You have no permission to trigger the DAG ${dag}`;
    }
    const run = this.#running();
    const abort = byId("abort");
    abort.hidden = !run || !answer.may_abort;
    abort.disabled = Boolean(run?.aborted_by);
    abort.textContent = run?.aborted_by ? "Aborting…" : "Abort…";
    abort.title = run?.aborted_by ? `by ${run.aborted_by}` : "Ends the run that changes the job, and rolls it back";
    const policySwitch = byId("policy-switch");
    policySwitch.hidden = policy === null;
    policySwitch.disabled = !answer.may_set_policy;
    policySwitch.textContent = policy?.enabled ? "Turn off…" : "Turn on…";
    policySwitch.title = answer.may_set_policy ? "" : "You have no permission to trigger the DAG autoscale, or to edit this job";
  }

  /** Return the run that holds the lease. */
  #running() {
    const { job, rescales } = this.#answer;
    return rescales.find((each) => each.state === "running" && each.run_id === job.lease?.owner);
  }

  #abort() {
    // The run that the dialog names, even if another one follows.
    const { run_id: runId } = this.#running();
    return {
      title: `Abort ${runId}`,
      verb: "Abort and roll back",
      show: () => [make("p", {}, "The run ends as failed, and the job returns to its old size and resumes from its newest epoch. Nothing is published twice.")],
      submit: () => send("api/abort", { name: this.#name, run_id: runId }),
    };
  }

  #policySwitch() {
    const { policy } = this.#answer;
    const enabled = !policy.enabled;
    const { min_parallelism: least = 1, max_parallelism: most, observe = false } = policy.settings;
    const what = enabled
      ? `From the next evaluation on, the policy ${observe ? "records what it would do" : "rescales the job by itself"}, between parallelism ${least} and ${most}. A policy that was blocked by failed rescales begins anew.`
      : "From now on, the policy decides nothing. A rescale that has begun goes on. Its settings stay, and catch-ups keep to its limits.";
    return {
      title: `Turn the policy of ${this.#name} ${enabled ? "on" : "off"}`,
      verb: enabled ? "Turn on" : "Turn off",
      show: () => [make("p", {}, what), ...(policy.finding ? [make("p", {}, `It found last: ${policy.finding}`)] : [])],
      submit: () => send("api/policy", { name: this.#name, enabled }),
    };
  }
}
