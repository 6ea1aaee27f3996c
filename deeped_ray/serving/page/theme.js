// Light or dark: as the system has it, unless somebody has chosen here. Not a module, so that it runs before the first paint.

const THEME = "deeped-ray theme"; // its key in localStorage

document.documentElement.dataset.theme = localStorage.getItem(THEME) ?? "system";

document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const isDark = () => {
    const { theme } = document.documentElement.dataset;
    return theme === "system" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
  };
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.title = `Show this page in ${isDark() ? "light" : "dark"} colours`;
  };
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    localStorage.setItem(THEME, chosen);
    document.documentElement.dataset.theme = chosen;
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
});
