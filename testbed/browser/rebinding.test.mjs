// A page of another site whose own name resolves to this machine (DNS rebinding). For the browser it is of the same origin as an
// open service on loopback, so neither `Origin` nor `Sec-Fetch-Site` tells them apart.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { TIMEOUT_MS, Service, startBrowser } from "./support.mjs";

const NAME = "rebound.example";

let browser;

before(async () => {
  browser = await startBrowser(`--host-resolver-rules=MAP ${NAME} 127.0.0.1`);
});

after(() => browser.close());

// Opens a document of that name. What is run in it is what the page would do: requests of the same origin. (A page that came
// from another address before its name was rebound is kept off loopback by newer versions of Chromium, and only by those.)
const openPage = async (service) => {
  const context = await browser.newContext();
  context.setDefaultTimeout(TIMEOUT_MS);
  const page = await context.newPage();
  await page.goto(`http://${NAME}:${service.port}/healthz`);
  return page;
};

const fetchIn = (page, method, path, body) =>
  page.evaluate(
    async ([method, path, body]) => {
      const answer = await fetch(path, { method, body });
      return { status: answer.status, text: await answer.text() };
    },
    [method, path, body],
  );

const forced = "/locks/nightly/break?force=true&now=true&reason=because";

test("a page whose name resolves to loopback reads nothing and changes nothing", async () => {
  const service = await Service.start();
  const fence = await service.acquire("nightly", { owner: "private-owner" });
  const page = await openPage(service);
  const many = JSON.stringify({ requests: [{ method: "DELETE", target: `/locks/nightly/${fence}` }] });
  for (const [method, path, body] of [
    ["GET", "/"],
    ["GET", "/locks"],
    ["GET", "/locks/nightly"],
    ["GET", "/locks/nightly/history"],
    ["GET", "/events"],
    ["GET", "/metrics"],
    ["GET", "/openapi.json"],
    ["POST", forced],
    ["DELETE", `/locks/nightly/${fence}`],
    ["POST", `/locks/nightly/${fence}`, "their text"],
    ["PUT", "/items/theirs?state=NEW", "their text"],
    ["POST", "/requests", many],
  ]) {
    const { status, text } = await fetchIn(page, method, path, body);
    assert.equal(status, 403, `${method} ${path}: ${text}`);
    assert.ok(!text.includes("private-owner") && !text.includes(String(fence)), text);
  }
  // Nor does it by the service's own address, which is another origin for it: it sees no answer.
  const answers = await page.evaluate(
    ([url, forced]) => {
      const ask = (path, init) => fetch(url + path, { mode: "no-cors", ...init }).then((answer) => answer.type, () => "failed");
      return Promise.all([ask("/locks"), ask(forced, { method: "POST" })]);
    },
    [service.url, forced],
  );
  for (const answer of answers) assert.ok(["opaque", "failed"].includes(answer), answer);
  const { json } = await service.ask("GET", "/locks/nightly");
  assert.equal(json.holders[0].fence, fence);
  assert.equal(json.holders[0].broken, undefined);
  assert.equal(json.body, "");
  assert.equal((await service.ask("GET", "/locks/theirs")).status, 404);
  await page.context().close();
  await service.stop();
});

// Without this, the test above could pass because the page reaches nothing at all.
test("the same page reads and changes leases where its name is allowed", async () => {
  const service = await Service.start({ more: ["--allow-host", NAME] });
  await service.acquire("nightly", { owner: "private-owner" });
  const page = await openPage(service);
  const { text } = await fetchIn(page, "GET", "/locks");
  assert.ok(text.includes("private-owner"), text);
  assert.equal((await fetchIn(page, "POST", forced)).status, 200);
  assert.equal((await service.ask("GET", "/locks/nightly")).json.held, false);
  await page.context().close();
  await service.stop();
});
