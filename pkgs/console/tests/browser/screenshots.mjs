// screenshots.mjs DIRECTORY: pictures of each screen, light and dark and on a phone, with realistic data.
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { Box, machines } from "./box.mjs";
import { Visitor, launch } from "./browser.mjs";

const directory = process.argv[2] ?? "docs/screenshots";
/** A picture is smaller than this, in bytes. */
const MOST = 150 * 1024;

const LINKS = [
  ["launch", "https://example.com/blog/2026/launch-of-the-new-store", "Launch of the new store", ["campaign", "autumn"]],
  ["pricing", "https://example.com/pricing?plan=team&utm_source=newsletter", "Pricing, newsletter", ["campaign"]],
  ["docs", "https://docs.example.com/", "Documentation", ["docs"]],
  ["rest", "https://docs.example.com/reference/rest/v1", "API reference", ["docs", "api"]],
  ["jobs", "https://example.com/company/careers", "We are hiring", ["company"]],
  ["talk26", "https://video.example.org/watch/9f2b71", "Talk: line rate on one box", ["talks"]],
  ["status", "https://status.example.com/", null, []],
  ["wifi", "https://example.com/visitors/wifi", "Visitors' Wi-Fi", ["office"]],
];
const USERS = [
  ["Ada Lovelace", "ada@example.org", "active", ["staff", "writes"]],
  ["Grace Hopper", "grace@example.org", "active", ["staff"]],
  ["Alan Turing", "alan@example.com", "invited", ["guest"]],
  ["Hedy Lamarr", "hedy@example.com", "active", ["staff", "radio"]],
  ["Karl Example", "karl@example.net", "suspended", []],
];
/** What the recorded machine does not tell of itself. */
const MACHINE = `/proc/sys/kernel/hostname = go-1
/proc/sys/kernel/osrelease = 6.18.9
/proc/uptime = 1042873.11 16012345.02
/proc/loadavg = 0.84 0.91 0.88 2/412 9120
/proc/meminfo:
|MemTotal:       32492716 kB
|MemAvailable:   27310444 kB
/run/current-system -> /nix/store/eeee
/nix/store/eeee/init =
/nix/var/nix/profiles/system-42-link -> /nix/store/eeee
`;
const AGENTS = [
  "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
  "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile/15E148 Safari/604.1",
  "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
  "curl/8.5.0",
];
const REFERRERS = ["https://news.example.org/", "https://social.example/", "", "https://mail.example.com/"];

/** The page of a profile of the whole machine, or of why there is none. */
async function profiled(address) {
  const visitor = await Visitor.open(browser);
  const { page } = visitor;
  await page.goto(new URL("/profile", address).href);
  await page.getByLabel("Seconds").fill("3");
  await page.getByRole("button", { name: "Look" }).click();
  await page.getByRole("heading", { name: "Flame graph" }).or(page.getByText("Nothing was seen")).waitFor({ timeout: 60000 });
  const place = page.url();
  await visitor.close();
  return place;
}

await mkdir(directory, { recursive: true });
const [box, browser] = await Promise.all([Box.start(0), launch()]);
let visits;
try {
  for (const [code, target, title, tags] of LINKS.slice().reverse()) {
    await box.api_of_links("POST", "links", { code, target, tags, ...(title && { title }) });
  }
  await box.api_of_links("PATCH", "links/wifi", { status: "disabled" });
  for (const [name, email, status, tags] of USERS) {
    const [given_name, family_name] = name.split(" ");
    const profile = { given_name, family_name, locale: "en-GB", time_zone: "Europe/London" };
    const addresses = [{ label: "office", street: "A street 1", city: "London", country: "GB" }];
    await box.api_of_users("POST", "users", { name, email, status, tags, profile, addresses, preferences: { theme: "dark", page_size: 50 } });
  }
  let n = 0;
  const visit = () => {
    n += 1;
    const [code] = LINKS[(n * n) % 7];
    return Promise.all([box.visit(code, AGENTS[n % 7 % 4], REFERRERS[n % 5 % 4]), fetch(box.files.files).then((a) => a.text())]).catch(() => {});
  };
  for (let round = 0; round < 400; round += 1) await visit();
  visits = setInterval(visit, 8);
  // The recorded machine has what this machine may lack: queues, and something to fix.
  const machine = path.join(box.data, "machine.txt");
  await writeFile(machine, MACHINE + (await readFile(path.join(machines, "c6i.4xlarge-8.txt"), "utf8")));
  const profile = path.join(machines, "c6i.4xlarge-8.json");
  const address = await box.console({ open: true, machine, args: ["--profile", profile] });
  const locked = await box.console();
  const writes = await box.files_of();
  const helped = await box.console({ open: true, args: ["--helper", "self"] });
  // A console where people sign in with an issuer; nobody asks it before somebody does.
  const vouched = await box.console({
    args: ["--oidc-issuer", "https://id.example", "--oidc-client-id", "console"], env: { LINERATE_CONSOLE_OIDC_CLIENT_SECRET: "none" },
  });
  await cp(new URL("../../assets/", import.meta.url), path.join(writes.root, "assets"), { recursive: true });
  const flame = await profiled(helped);
  const at = (place) => new URL(place, address).href;
  const screens = [
    ["sign-in", async (page) => { await page.goto(locked); }],
    ["sign-in-oidc", async (page) => { await page.goto(vouched); }],
    ["overview", async (page) => {
      // doctor has looked once, so that its findings are there.
      await page.goto(at("/doctor"));
      await page.goto(at("/"));
      // A few seconds of curve.
      await page.waitForFunction(() => (document.querySelector("[aria-label=links] .curve path")?.getAttribute("d").match(/L/g) ?? []).length > 8);
    }],
    ["links", async (page) => { await page.goto(at("/links")); }],
    ["link", async (page) => {
      await page.goto(at("/link/launch?days=30"));
      await page.waitForFunction(() => document.querySelector(".chart canvas") && document.querySelector(".qr img").complete);
    }],
    ["new-link", async (page) => {
      await page.goto(at("/links/new"));
      await page.getByLabel("Target").fill("https://example.com/");
      await page.getByLabel("Code").fill("not a code");
      await page.getByRole("button", { name: "Make the link" }).click();
      await page.locator("#code-error").waitFor();
    }],
    ["users", async (page) => { await page.goto(at("/users")); }],
    ["user", async (page) => {
      await page.goto(at("/users?q=grace"));
      await page.getByRole("link", { name: "Grace Hopper" }).click();
      await page.getByRole("heading", { name: "History" }).waitFor();
    }],
    ["access", async (page) => { await page.goto(at("/access?service=api")); }],
    ["files", async (page, visitor) => {
      await visitor.sign_in(writes.console, box.token);
      await page.goto(new URL("/files?path=/assets/", writes.console).href);
    }],
    ["profile", async (page) => { await page.goto(flame); }],
    ["queues", async (page) => { await page.goto(at("/queues")); }],
    ["doctor", async (page) => { await page.goto(at("/doctor")); }],
  ];
  const kinds = [
    ["light", {}],
    ["dark", { colorScheme: "dark" }],
    ["phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 1.5 }],
  ];
  for (const [kind, options] of kinds) {
    const visitor = await Visitor.open(browser, { viewport: { width: 1120, height: 760 }, reducedMotion: "reduce", ...options });
    for (const [name, show] of screens) {
      await show(visitor.page, visitor);
      const file = path.join(directory, `${name}-${kind}.png`);
      let picture = await visitor.page.screenshot({ path: file });
      if (picture.length > MOST) throw new Error(`${file} has ${picture.length} bytes`);
      console.log(`${file}: ${(picture.length / 1024).toFixed(0)} KiB`);
    }
    await visitor.close();
  }
} finally {
  clearInterval(visits);
  await browser.close();
  await box.stop();
}
