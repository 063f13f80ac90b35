const root = document.documentElement;
document.getElementById("theme").onclick = () => {
  const isDark = root.classList.contains("dark") ||
    (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  root.classList.remove("dark", "light");
  root.classList.add(isDark ? "light" : "dark");
};
for (const row of document.querySelectorAll(".filter")) {
  const samples = row.nextElementSibling.querySelectorAll("details");
  for (const button of row.querySelectorAll("button")) {
    button.onclick = () => {
      row.querySelectorAll("button").forEach((other) => other.classList.toggle("on", other === button));
      samples.forEach((sample) => {
        sample.hidden = button.dataset.show !== "all" && !sample.classList.contains(button.dataset.show);
      });
    };
  }
}
