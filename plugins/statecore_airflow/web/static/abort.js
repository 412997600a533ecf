// The button and the dialog that abort the run that is changing the job.
import { ask, byId } from "./page.js";

export class AbortDialog {
  #name;
  #reload;
  #runId = null;

  constructor(name, reload) {
    this.#name = name;
    this.#reload = reload;
    byId("abort").addEventListener("click", () => this.#open());
    byId("abort-cancel").addEventListener("click", () => byId("abort-dialog").close());
    byId("abort-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
  }

  /** Show the button while a run holds the lease; the dialog keeps the run that it was opened for. */
  update({ job, rescales, may_abort: mayAbort }) {
    const run = rescales.find((each) => each.state === "running" && each.run_id === job.lease?.owner);
    const button = byId("abort");
    button.hidden = !run || !mayAbort;
    button.disabled = Boolean(run?.aborted_by);
    button.textContent = run?.aborted_by ? "Aborting…" : "Abort…";
    button.title = run?.aborted_by ? `by ${run.aborted_by}` : "Ends the run that changes the job, and rolls it back";
    if (!byId("abort-dialog").open) this.#runId = run?.run_id ?? null;
  }

  #open() {
    byId("abort-title").textContent = `Abort ${this.#runId}`;
    byId("abort-outcome").replaceChildren();
    byId("abort-submit").disabled = false;
    byId("abort-dialog").showModal();
  }

  async #submit() {
    byId("abort-submit").disabled = true;
    byId("abort-outcome").textContent = "Submitting…";
    try {
      await ask("api/abort", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ name: this.#name, run_id: this.#runId }),
      });
      byId("abort-dialog").close();
      this.#reload();
    } catch (error) {
      byId("abort-outcome").textContent = `Refused. ${error.message}`;
      byId("abort-submit").disabled = false;
    }
  }
}
