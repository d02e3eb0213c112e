// A box for tests: the real services on loopback, each with its own data in a temporary directory, and consoles in
// front of them.
import { spawn, execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile, mkdir } from "node:fs/promises";
import { createInterface } from "node:readline";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { mmdb } from "./mmdb.mjs";

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../../..");
export const programs = process.env.LINERATE_PROGRAMS ?? path.join(root, "target/debug");
/** Machines that were recorded for the tests of the command line. */
export const machines = path.join(root, "linerate/tests/machines");
const program = (name) => path.join(programs, name);

/** The last line of a log that is like that: a log has it some time after what it tells of was answered. */
export async function logged(file, is) {
  for (const end = Date.now() + 60000; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const log = await readFile(file, "utf8");
    // A line that is being written has no end yet.
    const line = log.split("\n").slice(0, -1).map((text) => JSON.parse(text)).findLast(is);
    if (line) return line;
    if (Date.now() > end) throw new Error(`not in ${file}: ${log}`);
  }
}

/** Starts a program and waits until it has said all of these: the word that follows each. */
async function start(name, args, words, env = {}) {
  const child = spawn(program(name), args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  const errors = [];
  createInterface({ input: child.stderr }).on("line", (line) => errors.push(line));
  const ended = new Promise((_, refuse) => {
    child.once("error", refuse);
    child.once("exit", (code) => refuse(new Error(`${name} ended with ${code}: ${errors.join("\n")}`)));
  });
  ended.catch(() => {});
  const said = {};
  const all = (async () => {
    for await (const line of createInterface({ input: child.stdout })) {
      const [word, value] = line.split(/\s+/, 2);
      said[value?.startsWith("https:") ? `${word} by TLS` : word] ??= value;
      if (words.every((wanted) => wanted in said)) return;
    }
  })();
  await Promise.race([all, ended]);
  child.stdout.resume();
  const stop = () => new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null) return done();
    child.once("exit", done);
    child.kill("SIGTERM");
  });
  const kill = () => new Promise((done) => {
    child.once("exit", done);
    child.kill("SIGKILL");
  });
  return { ...said, child, stop, kill, errors };
}

const host = (url) => new URL(url).host;

export class Box {
  /** With so many links; `jwt` is what links and the API are told of an issuer. */
  static async start(links, jwt = []) {
    const box = new Box();
    box.data = await mkdtemp(path.join(tmpdir(), "linerate-console-"));
    box.running = [];
    const www = path.join(box.data, "www");
    await mkdir(www);
    await writeFile(path.join(www, "index.html"), "<!doctype html><title>files</title>\n");
    const database = path.join(box.data, "links.db");
    if (links > 0) await box.fill(database, links);
    const at = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    const audit = (name) => ["--audit-log", path.join(box.data, `${name}-audit.log`)];
    const users = ["--database-url", `sqlite:${path.join(box.data, "api.db")}`];
    // A service that requires keys, as when others can reach it.
    const key = async (name, scope) => {
      const { stdout } = await run(program("linerate-api"), ["key", "add", name, "--json", "--scope", scope, "--rate", "0", ...users]);
      return JSON.parse(stdout).key;
    };
    box.api_keys = { write: await key("writer", "write"), read: await key("reader", "read") };
    [box.links, box.files, box.api] = await Promise.all([
      box.service("linerate-links", ["serve", ...at, "--print-token", "--database", database, ...audit("links"), ...jwt], ["links", "admin", "token"]),
      box.service("linerate-files", ["serve", ...at, "--admin-browse", "--root", www], ["files", "admin"]),
      box.service("linerate-api", ["serve", ...at, "--auth", "keys", ...users, ...audit("api"), ...jwt], ["api", "admin"]),
    ]);
    box.token = box.links.token;
    return box;
  }

  async service(...args) {
    const service = await start(...args);
    this.running.push(service);
    return service;
  }

  /** What writes files below a root of its own, with a console and a server before it. */
  async files_of(args = []) {
    const root = await mkdtemp(path.join(this.data, "files-"));
    const socket = path.join(this.data, `${path.basename(root)}.socket`);
    const flags = ["files-writer", "--root", root, "--listen", `unix:${socket}`, "--user", String(process.getuid()), ...args];
    const write = () => this.service("linerate", flags, ["writer"]);
    const writer = await write();
    const files = await this.service("linerate-files", ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--admin-browse", "--root", root], ["files", "admin"]);
    const audit = path.join(this.data, `${path.basename(root)}-audit.log`);
    const console = await this.console({ args: ["--files", host(files.admin), "--files-writer", `unix:${socket}`, "--audit-log", audit] });
    return { root, files, writer, write, console, audit };
  }

  /** A console before these services; with `open` nobody signs in, with `tls` its address is the one by TLS. */
  async console({ open = false, machine, args = [], env: more = {}, tls = false } = {}) {
    const before = machine ? ["--machine", path.resolve(machines, machine)] : [];
    const named = ["links", "files", "api"].filter((name) => !args.includes(`--${name}`));
    const services = named.flatMap((name) => [`--${name}`, host(this[name].admin)]);
    const audits = ["links", "api"].flatMap((name) => [`--${name}-audit`, path.join(this.data, `${name}-audit.log`)]);
    const all = [...before, "console", "--listen", "127.0.0.1:0", ...services, "--users", host(this.api.api), ...audits, ...args, ...(tls ? await this.certified() : [])];
    const env = open ? { LINERATE_CONSOLE_TOKEN: this.token, LINERATE_CONSOLE_API_TOKEN: this.api_keys.write } : more;
    const word = tls ? "console by TLS" : "console";
    return (await this.service("linerate", all, [word], env))[word];
  }

  /** Flags of a listener by TLS, with a certificate that nobody has signed. */
  async certified() {
    const [key, cert] = ["key.pem", "cert.pem"].map((name) => path.join(this.data, name));
    const to = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert];
    await run("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", ...to]);
    return ["--tls-listen", "127.0.0.1:0", "--cert", cert, "--key", key];
  }

  /** Links of their own that know these networks, with a console before them. */
  async links_by_country(networks) {
    const file = path.join(this.data, "countries.mmdb");
    await writeFile(file, mmdb(networks));
    const flags = ["--database", path.join(this.data, "by-country.db"), "--geoip", file, "--trusted-proxy", "127.0.0.1"];
    const at = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--print-token"];
    const links = await this.service("linerate-links", ["serve", ...at, ...flags], ["links", "admin", "token"]);
    return { links, console: await this.console({ args: ["--links", host(links.admin)] }) };
  }

  /** Links by the hundred thousand, as an import has them. */
  async fill(database, count) {
    const file = path.join(this.data, "links.csv");
    const rows = ["code,target,title,tags,clicks"];
    for (let n = 0; n < count; n += 1) {
      rows.push(`n${n.toString(36)},https://example.com/${n},Number ${n},${n % 2 ? "odd" : "even"},${(n * 7919) % 100000}`);
    }
    await writeFile(file, rows.join("\n"));
    await run(program("linerate-links"), ["import", file, "--database", database], { maxBuffer: 1 << 24 });
  }

  /** Asks the API of links. */
  async api_of_links(method, place, body) {
    const response = await fetch(new URL(`api/v1/${place}`, this.links.admin), {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body && JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${method} ${place}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  /** Asks the API of users. */
  async api_of_users(method, place, body, media_type = "application/json") {
    const headers = { authorization: `Bearer ${this.api_keys.write}`, ...(body && { "content-type": media_type }) };
    const response = await fetch(new URL(`v1/${place}`, this.api.api), { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${place}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  /** A visitor follows a link. */
  async visit(code, agent = "Mozilla/5.0 Firefox/140.0", referrer = "https://news.example/") {
    const headers = { "user-agent": agent, ...(referrer ? { referer: referrer } : {}) };
    const response = await fetch(new URL(code, this.links.links), { redirect: "manual", headers });
    await response.arrayBuffer();
    return response.status;
  }

  async stop() {
    // Those in front of others first, since a console uses services.
    for (const service of this.running.reverse()) await service.stop();
    await rm(this.data, { recursive: true, force: true });
  }
}
