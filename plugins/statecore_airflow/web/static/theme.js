// Light or dark: what was chosen here, else what Airflow's own pages show, else what the system prefers.
// A classic script in the head, so that the first picture has the right colours already.
(() => {
  const OURS = "statecore-theme";
  const AIRFLOWS = "theme"; // where Airflow's pages keep theirs; "system" or nothing leaves it to the system
  const CHOICES = ["auto", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    const ours = localStorage.getItem(OURS);
    return CHOICES.includes(ours) ? ours : "auto";
  }

  function shown() {
    for (const theme of [chosen(), localStorage.getItem(AIRFLOWS)]) {
      if (theme === "light" || theme === "dark") return theme;
    }
    return system.matches ? "dark" : "light";
  }

  function show() {
    const changed = document.documentElement.dataset.theme !== shown();
    document.documentElement.dataset.theme = shown();
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = { auto: "Theme: as Airflow", light: "Theme: light", dark: "Theme: dark" }[chosen()];
      button.title = "Light, dark, or as Airflow's own pages";
    }
    if (changed) document.dispatchEvent(new Event("themechange"));
  }

  show();
  system.addEventListener("change", show);
  // Fires when another page of this address, such as Airflow's around this one, has changed its theme.
  addEventListener("storage", show);
  addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem(OURS, CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
      show();
    });
  });
})();
