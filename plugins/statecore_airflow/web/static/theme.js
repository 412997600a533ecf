// Theme: the choice made here, else that of Airflow's own pages, else the system's preference.
// A classic script in the head, so that the first paint has the right colours.
(() => {
  const OURS = "statecore-theme";
  const AIRFLOWS = "theme"; // Airflow's own key; "system" or no value means the system's preference
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
      button.textContent = { auto: "Theme: Airflow's", light: "Theme: light", dark: "Theme: dark" }[chosen()];
      button.title = "Light, dark, or the theme of Airflow's own pages";
    }
    if (changed) document.dispatchEvent(new Event("themechange"));
  }

  show();
  system.addEventListener("change", show);
  // Fires when another page of this origin, such as Airflow's around this one, changes the theme.
  addEventListener("storage", show);
  addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem(OURS, CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
      show();
    });
  });
})();
