// Runs before the first paint, hence not a module: a module would let the other theme flash.
(() => {
  const CHOICES = ["system", "light", "dark"];
  const read = () => {
    try {
      return localStorage.getItem("strata.theme");
    } catch {
      return null;
    }
  };
  let choice = CHOICES.includes(read()) ? read() : "system";
  const apply = () => {
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
  };
  apply();
  window.strataTheme = {
    get choice() {
      return choice;
    },
    next() {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      try {
        localStorage.setItem("strata.theme", choice);
      } catch {
        // A browser that keeps nothing still shows the theme until the page is closed.
      }
      apply();
      return choice;
    },
  };
})();
