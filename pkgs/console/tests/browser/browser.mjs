// Debian's Chromium, and what every page has to comply with.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const places = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser"];

export async function launch() {
  const executablePath = places.find((place) => place && existsSync(place));
  if (!executablePath) throw new Error("there is no Chromium: .ci/install.sh chromium");
  return chromium.launch({ executablePath, args: process.getuid() === 0 ? ["--no-sandbox"] : [] });
}

/** What nobody may say on the browser's console; what a page that is an error says of itself is none of it. An aborted
 *  request was given up for a newer one, or with its page: htmx calls that an error. */
const EXPECTED = /^(Failed to load resource: the server responded with a status of (400|401|403|404|409|412|422|429|503)|htmx:(afterRequest|sendAbort)(,|$))/;

export class Visitor {
  /** Somebody at a browser: `javaScriptEnabled`, `colorScheme`, `viewport` as Playwright has them. */
  static async open(browser, options = {}) {
    const visitor = new Visitor();
    visitor.context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    visitor.scripts = options.javaScriptEnabled !== false;
    visitor.complaints = [];
    visitor.page = await visitor.context.newPage();
    visitor.page.setDefaultTimeout(60000);
    visitor.page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !EXPECTED.test(message.text())) {
        visitor.complaints.push(`${message.type()}: ${message.text()}`);
      }
    });
    visitor.page.on("pageerror", (error) => visitor.complaints.push(`pageerror: ${error}`));
    visitor.page.on("dialog", (dialog) => {
      visitor.complaints.push(`a script ran: ${dialog.message()}`);
      dialog.dismiss();
    });
    return visitor;
  }

  async sign_in(address, token) {
    await this.page.goto(new URL("/sign-in", address).href);
    await this.page.getByLabel("Key").fill(token);
    await this.page.getByRole("button", { name: "Sign in" }).click();
    await this.page.getByRole("heading", { name: "Overview" }).waitFor();
  }

  /** Whoever cannot see the screen, or use a mouse, finds nothing in their way that is serious. */
  async accessible(what) {
    // In an isolated world, where the page's policy doesn't apply.
    const session = await this.context.newCDPSession(this.page);
    const { frameTree } = await session.send("Page.getFrameTree");
    const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id, worldName: "axe" });
    // A page without scripts has no timers, which the checker waits for; there are no frames here for which it would
    // need them.
    const timers = this.scripts ? "" : "globalThis.setTimeout = (call) => (queueMicrotask(call), 0);";
    const expression = `${timers} ${axe}; axe.run(document, { preload: ${this.scripts}, resultTypes: ["violations"] }).then((found) => JSON.stringify(found.violations
      .filter((one) => ["serious", "critical"].includes(one.impact))
      .map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html + " " + (node.any[0]?.message ?? ""))])))`;
    const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
      contextId: executionContextId, expression, awaitPromise: true, returnByValue: true,
    });
    await session.detach();
    assert.equal(exceptionDetails, undefined, what);
    assert.deepEqual(JSON.parse(result.value), [], `${what}: axe`);
    if (!this.scripts) return;
    const wider = await this.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wider <= 0, `${what}: the page is ${wider} px wider than the screen`);
  }

  async close() {
    await this.context.close();
    assert.deepEqual(this.complaints, []);
  }
}
