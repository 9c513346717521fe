const content = JSON.parse(document.getElementById("content").textContent);

function chooseTheme() {
  const button = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
    document.dispatchEvent(new Event("theme"));
  });
  system.addEventListener("change", name);
  name();
}

document.title = `${content.run.name}: report`;
document.getElementById("title").textContent = content.run.name;
document.getElementById("subtitle").textContent = subtitle();
const parts = [
  overview(),
  mapSection(),
  neighbourSection(),
  rejectedSection(),
  lengthSection(),
  vectorSection(),
  runSection(),
];
document.getElementById("main").append(...parts.flat().filter(Boolean));
chooseTheme();
