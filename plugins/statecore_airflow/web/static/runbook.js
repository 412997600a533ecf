// The page of the runbook: what each alert means, and what to do.
import { ask, byId, keepLoading, make, prose, renew } from "./page.js";

const EVERY_MS = 3_600_000;

function entry([name, text]) {
  return [make("h2", { id: name }, name), make("p", { class: "runbook" }, ...prose(text))];
}

async function load() {
  const { entries } = await ask("api/runbook");
  renew(byId("entries"), entries, () => Object.entries(entries).flatMap(entry));
  // The browser looked for it before it was there.
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

keepLoading(load, EVERY_MS);
