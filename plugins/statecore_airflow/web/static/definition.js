// How a job is registered, and who has changed it.
import { age, byId, make, renew, table } from "./page.js";

/** Lists of names and values, each with a heading; an empty one is omitted. */
export function showDefinition(definition, policy) {
  const lists = {
    Registered: definition.registered,
    "Settings that the job file reads": definition.settings,
    "Spark configuration of the driver": definition.conf,
    Policy: policy?.settings ?? {},
  };
  renew(byId("definition"), lists, () =>
    Object.entries(lists).filter(([, values]) => Object.keys(values).length).map(([title, values]) =>
      make("div", {}, make("h3", {}, title), make("dl", {}, ...Object.entries(values).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, words(value))])))));
}

export function showAudit({ audit }) {
  renew(byId("audit"), audit, () =>
    table(["When", "Who", "Database login", "What"], audit.map((each) => [
      age(each.at_ms), each.on_behalf_of, each.actor ?? "–", make("td", { class: "wide" }, Object.entries(each.change).map(change).join("; ")),
    ]), "No change is known."));
}

/** Of settings and configuration the audit has only the names that changed. */
function change([field, value]) {
  const name = field.replaceAll("_", " ");
  if (!Array.isArray(value)) return `${name} ${value}`;
  return ["conf", "settings"].includes(field) ? `${name}: ${value.join(", ")}` : `${name} ${words(value[0])} → ${words(value[1])}`;
}

function words(value) {
  if (value === null) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
