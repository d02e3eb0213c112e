// Signing in with an issuer, as people do it: a real issuer, real services that accept its tokens, Chromium. The
// console is at localhost and the issuer at 127.0.0.1, which are two sites for a browser. Takes about twenty seconds.
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import path from "node:path";
import { after, before, test } from "node:test";
import { Box, logged } from "./box.mjs";
import { Visitor, launch } from "./browser.mjs";
import { CLIENT_SECRET, Issuer } from "./issuer.mjs";

let issuer, box, browser, address;

before(async () => {
  [issuer, browser] = await Promise.all([Issuer.start(), launch()]);
  box = await Box.start(0, issuer.jwt);
  const console = await box.console({ args: issuer.oidc, env: { LINERATE_CONSOLE_OIDC_CLIENT_SECRET: CLIENT_SECRET } });
  address = console.replace("127.0.0.1", "localhost");
  issuer.register(address);
});

after(async () => {
  await browser?.close();
  await box?.stop();
  await issuer?.stop();
});

const at = (place) => new URL(place, address).href;
const heading = (page, name) => page.getByRole("heading", { level: 1, name });
const to_issuer = (page) => page.getByRole("button", { name: "Sign in at 127.0.0.1" });

/** Goes through the issuer as somebody. */
async function through_issuer(page, name) {
  await to_issuer(page).click();
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Go on" }).click();
}

/** The last write of links or of the API that is like that, by their logs. */
const written = (service, is) => logged(path.join(box.data, `${service}-audit.log`), is);

for (const scripts of [true, false]) {
  test(`somebody signs in at the issuer, ${scripts ? "with" : "without"} scripts, and writes by their own name`, async () => {
    const visitor = await Visitor.open(browser, { javaScriptEnabled: scripts });
    const { page } = visitor;
    await page.goto(at("/links?q=anything"));
    await heading(page, "Sign in").waitFor();
    if (scripts) await visitor.accessible("sign-in with an issuer");
    await through_issuer(page, "ada");
    await heading(page, "Links").waitFor();
    assert.match(page.url(), /\/links\?q=anything$/);
    const cookies = (await visitor.context.cookies(address)).filter(({ name }) => name.startsWith("linerate"));
    assert.deepEqual(cookies.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite]), [["linerate", true, "Strict"]]);

    await page.goto(at("/links/new"));
    await page.getByLabel("Target").fill("https://example.com/of-ada");
    await page.getByLabel("Code").fill(`ada-${scripts}`);
    await page.getByRole("button", { name: "Make the link" }).click();
    await heading(page, `ada-${scripts}`).waitFor();
    const line = await written("links", ({ target }) => target === `ada-${scripts}`);
    assert.deepEqual([line.action, line.name, line.key], ["link.create", "ada", null]);

    // The users are accessible with the same token.
    await page.goto(at("/users"));
    await heading(page, "Users").waitFor();
    await page.goto(at("/access"));
    await page.getByText("Signed in as").waitFor();
    await page.getByText("ada", { exact: true }).first().waitFor();
    if (scripts) await visitor.accessible("access, by an issuer");
    await visitor.close();
  });
}

test("what somebody may is what their groups are for", async () => {
  const reader = await Visitor.open(browser);
  await reader.page.goto(at("/"));
  await through_issuer(reader.page, "rita");
  await heading(reader.page, "Overview").waitFor();
  await reader.page.goto(at("/links/new"));
  await reader.page.getByLabel("Target").fill("https://example.com/of-rita");
  await reader.page.getByRole("button", { name: "Make the link" }).click();
  await reader.page.getByText("the one sent has the scope read").waitFor();
  await reader.page.goto(at("/access"));
  await reader.page.getByText("Audit log").waitFor();
  assert.equal(await reader.page.locator("#writes-found").count(), 0, "what everybody writes is not for readers");
  await reader.close();

  const nobody = await Visitor.open(browser);
  await nobody.page.goto(at("/"));
  await through_issuer(nobody.page, "mallory");
  await nobody.page.getByRole("alert").getByText("mallory may do nothing here").waitFor();
  await nobody.page.goto(at("/links"));
  await heading(nobody.page, "Sign in").waitFor();
  await nobody.close();
});

test("returns that nobody began keep nobody from signing in", async () => {
  // More than an address may try within a minute. Any page can make a browser ask for this.
  for (let tries = 0; tries < 30; tries++) {
    assert.equal((await fetch(at("/sign-in/oidc/callback?state=x"))).status, 403);
  }
  const visitor = await Visitor.open(browser);
  await visitor.page.goto(at("/"));
  await through_issuer(visitor.page, "ada");
  await heading(visitor.page, "Overview").waitFor();
  await visitor.close();
});

test("signing out everywhere ends every session of the same person, and of nobody else", async () => {
  const people = [];
  for (const name of ["ada", "ada", "rita"]) {
    const visitor = await Visitor.open(browser);
    await visitor.page.goto(at("/"));
    await through_issuer(visitor.page, name);
    await heading(visitor.page, "Overview").waitFor();
    people.push(visitor);
  }
  await people[0].page.getByRole("button", { name: "… everywhere" }).click();
  await heading(people[0].page, "Signed out").waitFor();
  for (const [who, where] of [[1, "Sign in"], [2, "Links"]]) {
    await people[who].page.goto(at("/links"));
    await heading(people[who].page, where).waitFor();
  }
  for (const visitor of people) await visitor.close();
});

for (const scripts of [true, false]) {
  test(`whoever signs out is led to sign out at the issuer too, ${scripts ? "with" : "without"} scripts`, async () => {
    const visitor = await Visitor.open(browser, { javaScriptEnabled: scripts });
    const { page } = visitor;
    // The issuer's own page requests a font from a third party, which must not be contacted.
    const elsewhere = (url) => !["127.0.0.1", "localhost"].includes(url.hostname);
    await page.route(elsewhere, (route) => route.fulfill({ contentType: "text/css", body: "" }));
    await page.goto(at("/"));
    await through_issuer(page, "ada");
    await heading(page, "Overview").waitFor();
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await heading(page, "Signed out").waitFor();
    if (scripts) await visitor.accessible("signed out");
    // The issuer still knows them, and asks nothing.
    await page.getByRole("link", { name: "Sign in again" }).click();
    await to_issuer(page).click();
    await heading(page, "Overview").waitFor();
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.getByRole("link", { name: "Sign out at 127.0.0.1 too" }).click();
    await page.getByRole("button", { name: "Yes, sign me out" }).click();
    await page.goto(at("/"));
    await to_issuer(page).click();
    await page.getByLabel("Name").waitFor();
    await visitor.close();
  });
}

test("who is sent back without having set out is not let in, nor signed out", async () => {
  const visitor = await Visitor.open(browser);
  const { page } = visitor;
  await page.goto(at("/"));
  await through_issuer(page, "ada");
  await heading(page, "Overview").waitFor();
  // From another site's page, which sends no session cookie.
  for (const query of ["code=a&state=b", "error=access_denied&state=b", ""]) {
    await page.goto(issuer.url + "/interaction/x");
    await page.evaluate((place) => { location.href = place; }, at(`/sign-in/oidc/callback?${query}`));
    await page.getByRole("alert").getByText("was not begun in this browser").waitFor();
  }
  await page.getByRole("link", { name: "To the overview" }).click();
  await heading(page, "Overview").waitFor();
  // After following a link from another site, people are still signed in.
  await page.goto(issuer.url + "/interaction/x");
  await page.evaluate((place) => { location.href = place; }, at("/links"));
  await heading(page, "Links").waitFor();
  await visitor.close();
  // Nor can another site's page start a sign-in for anybody.
  const form = { method: "POST", redirect: "manual", body: new URLSearchParams({ next: "/" }) };
  const refused = await fetch(at("/sign-in/oidc"), { ...form, headers: { origin: "http://evil.example" } });
  assert.equal(refused.status, 403);
});

test("links and the API take tokens of the issuer beside keys, and no others", async () => {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const now = Math.floor(Date.now() / 1000);
  const places = [
    [new URL("api/v1/links", box.links.admin), { target: "https://example.com/by-token" }],
    [new URL("v1/users", box.api.api), { email: "by-token@example.com", name: "By Token" }],
  ];
  const ask = async (place, token, body) => {
    const headers = { authorization: `Bearer ${token}`, ...(body && { "content-type": "application/json" }) };
    const answer = await fetch(place, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
    const said = await answer.text();
    return [answer.status, answer.headers.get("www-authenticate") ?? "", said];
  };
  for (const [place, body] of places) {
    for (const [what, token, status] of [
      ["good", issuer.token(), 200],
      ["a reader's", issuer.token({ groups: ["staff"] }), 200],
      ["nobody's", issuer.token({ groups: ["guests"] }), 403],
      ["of another audience", issuer.token({ aud: "other" }), 401],
      ["of another issuer", issuer.token({ iss: "https://evil.example" }), 401],
      ["expired", issuer.token({ exp: now - 120 }), 401],
      ["of a time to come", issuer.token({ nbf: now + 3600 }), 401],
      ["unsigned", issuer.token({}, { alg: "none" }), 401],
      ["by what is public", issuer.token({}, { alg: "HS256" }), 401],
      ["by another's key", issuer.token({}, { key: privateKey }), 401],
      ["by a key of no name that is known", issuer.token({}, { key: privateKey, kid: "two" }), 401],
      ["too long", issuer.token({ groups: [..."ab".repeat(1300)] }), 401],
      ["cut off", issuer.token().slice(0, -10), 401],
    ]) {
      const [answered, challenge, said] = await ask(place, token);
      assert.equal(answered, status, `${place}: ${what}: ${said}`);
      if (status === 401) assert.match(challenge, /^Bearer/, what);
    }
    assert.equal((await ask(place, issuer.token({ groups: ["staff"] }), body))[0], 403, `${place}: a reader writes`);
    const [made, , said] = await ask(place, issuer.token(), body);
    assert.equal(made, 201, said);
    const { id, code } = JSON.parse(said);
    const line = await written(code ? "links" : "api", ({ target }) => target === (code ?? id));
    assert.deepEqual([line.name, line.key], ["ada", null], place);
  }
  // Keys still work as before.
  assert.equal((await ask(places[0][0], box.token))[0], 200);
  assert.equal((await ask(places[1][0], box.api_keys.read))[0], 200);
});
