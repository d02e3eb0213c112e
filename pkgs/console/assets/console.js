// What pages do beyond links and forms, which work without any of it.
"use strict";

// Buttons that need a script are hidden until there is one.
function wire(root) {
  root.querySelectorAll("button.copy").forEach((button) => {
    if (!navigator.clipboard || button.dataset.wired) return;
    button.dataset.wired = "yes";
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    });
  });
  root.querySelectorAll("button.again").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => location.reload());
  });
  const all = root.querySelector("#all");
  if (all && !all.dataset.wired) {
    all.dataset.wired = "yes";
    all.hidden = false;
    all.addEventListener("change", () => {
      document.querySelectorAll("#bulk input[name=link]").forEach((box) => {
        box.checked = all.checked;
      });
    });
  }
  root.querySelectorAll(".chart[data-series]").forEach(chart);
}

// Clicks by hour or day, those of bots apart, beside those of as long before.
function chart(place) {
  if (typeof uPlot === "undefined" || place.firstChild) return;
  place.hidden = false;
  const { hours, times, clicks, bots, before } = JSON.parse(place.dataset.series);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  // A step in seconds, and which part of an instant names one.
  const [step, part] = hours ? [3600, [11, 16]] : [86400, [5, 10]];
  const instant = (time, ...part) => new Date(time * 1000).toISOString().replace("T", " ").slice(...part);
  const bars = uPlot.paths.bars({ size: [0.7, 40] });
  const axis = {
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const series = [
    { value: (_, time) => (time ? instant(time, 0, hours ? 16 : 10) : "–") },
    { label: "clicks", stroke: colour("--accent"), fill: colour("--accent"), paths: bars, points: { show: false } },
  ];
  const data = [times.map((time) => Date.parse(time) / 1000), clicks];
  if (bots.some((count) => count > 0)) {
    series.push({ label: "by bots", stroke: colour("--quiet"), width: 2, dash: [4, 4], points: { show: false } });
    data.push(bots);
  }
  if (before) {
    series.push({ label: "before", stroke: colour("--warning"), width: 2, points: { show: false } });
    data.push(before);
  }
  const size = () => ({ width: Math.max(280, place.clientWidth), height: 220 });
  const plot = new uPlot(
    {
      ...size(),
      series,
      tzDate: (time) => uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
      scales: { x: { range: (_, first, last) => [first - step / 2, last + step / 2] }, y: { range: (_, __, most) => [0, Math.max(1, most) * 1.05] } },
      axes: [{ ...axis, space: 70, values: (_, times) => times.map((time) => instant(time, ...part)) },
             { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7, 1e8] }],
      cursor: { drag: { x: false, y: false } },
    },
    data,
    place,
  );
  new ResizeObserver(() => plot.setSize(size())).observe(place);
}

addEventListener("DOMContentLoaded", () => wire(document));
document.addEventListener("htmx:afterSettle", (event) => wire(event.target));

// A page that is left breaks its stream of events off, which is no error that anybody has to be told.
let leaving = false;
addEventListener("beforeunload", () => {
  leaving = true;
  // A download leaves nothing.
  setTimeout(() => (leaving = false), 5000);
});
htmx.createEventSource = (address) => {
  const source = new EventSource(address);
  source.addEventListener("error", (event) => {
    if (leaving) event.stopImmediatePropagation();
    else stale(address, true);
  });
  source.addEventListener("open", () => stale(address, false));
  return source;
};

// While a stream of events is broken off, the figures of its page are old ones and look like new ones.
function stale(address, is) {
  const place = document.querySelector(`[sse-connect="${CSS.escape(address)}"]`);
  const said = place?.previousElementSibling;
  if (said?.matches(".stale")) {
    if (!is) said.remove();
  } else if (place && is) {
    const alert = document.createElement("p");
    alert.className = "alert stale";
    alert.setAttribute("role", "alert");
    alert.textContent = "The console does not answer: these figures are old";
    place.before(alert);
  }
}
