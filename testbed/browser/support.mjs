// A service of its own for each test, and a browser for all of them.

import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { chromium } = createRequire(join(process.env.LEASEHOLD_BROWSER, "package.json"))("playwright-core");

// Longer than anything here takes, unless it hangs.
export const TIMEOUT_MS = 20000;

export const startBrowser = (...more) =>
  chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", ...more] });

export class Service {
  // With access control if `guarded`, on this port if there is one, and with more options.
  static async start({ guarded = false, port = 0, store = "memory:", more = [] } = {}) {
    const service = new Service();
    service.folder = mkdtempSync(join(tmpdir(), "leasehold-browser-"));
    service.access = join(service.folder, "access.toml");
    const options = ["serve", "--store", store, "--listen", `127.0.0.1:${port}`, ...more];
    if (guarded) {
      service.admin = service.token("root", "admin:");
      options.push("--access", service.access);
    }
    service.process = spawn(process.env.LEASEHOLD, options, { stdio: ["ignore", "ignore", "pipe"] });
    service.url = await service.listening();
    return service;
  }

  listening() {
    return new Promise((resolve, reject) => {
      let log = "";
      this.process.stderr.on("data", (bytes) => {
        log += bytes;
        const found = /listening on (http:\S+)/.exec(log.replace(/\u001b\[[0-9;]*m/g, ""));
        if (found) resolve(found[1]);
      });
      this.process.on("exit", () => reject(new Error(`the service has ended: ${log}`)));
    });
  }

  get port() {
    return Number(new URL(this.url).port);
  }

  // A new token. To be made before the service starts, or it has to read the file again first.
  token(principal, ...scopes) {
    const allow = scopes.flatMap((scope) => ["--allow", scope]);
    const command = ["token", "create", principal, ...allow, "--access", this.access];
    return execFileSync(process.env.LEASEHOLD, command, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  }

  async ask(method, path, { body, token = this.admin } = {}) {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const answer = await fetch(this.url + path, { method, headers, body });
    return { status: answer.status, json: await answer.json() };
  }

  // Takes a lease, and gives its fence.
  async acquire(name, { owner = "web-1", ttl = "1h", more = "" } = {}) {
    const path = `/locks?name=${encodeURIComponent(name)}&nonce=${owner}&owner=${owner}&ttl=${ttl}${more}`;
    const { status, json } = await this.ask("POST", path);
    if (status !== 200) throw new Error(`${name}: ${JSON.stringify(json)}`);
    return json.fence;
  }

  release(name, fence) {
    return this.ask("DELETE", `/locks/${fence}?name=${encodeURIComponent(name)}`);
  }

  // Many leases at once, 64 in a request and some requests at a time.
  async acquireMany(count, nameOf) {
    const names = Array.from({ length: count }, (_, number) => nameOf(number));
    const batches = [];
    while (names.length > 0) batches.push(names.splice(0, 64));
    const work = async () => {
      for (let batch = batches.pop(); batch; batch = batches.pop()) {
        await this.ask("POST", "/locks?nonce=many&owner=many&ttl=24h", { body: JSON.stringify({ names: batch }) });
      }
    };
    await Promise.all(Array.from({ length: 8 }, work));
  }

  async stop() {
    if (this.process.exitCode === null) {
      const ended = new Promise((resolve) => this.process.once("close", resolve));
      this.process.kill("SIGTERM");
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

// Waits until something is as it should be, or says what it was.
export const until = async (what, look, fits) => {
  const deadline = Date.now() + TIMEOUT_MS;
  for (;;) {
    const seen = await look();
    if (fits(seen)) return seen;
    if (Date.now() > deadline) throw new Error(`${what}: it stayed ${JSON.stringify(seen)}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
};

export const screenshot = (page, name) =>
  page.screenshot({ path: join(process.env.LEASEHOLD_SCREENSHOTS, `${name}.png`) });
