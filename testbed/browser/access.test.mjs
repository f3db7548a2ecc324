// The dashboard of a service that wants to know who asks.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { TIMEOUT_MS, Service, screenshot, startBrowser, until } from "./support.mjs";

let browser;
let service;
let viewer;
let breaker;

before(async () => {
  browser = await startBrowser();
  service = await Service.start({ guarded: true });
  viewer = service.token("viewer", "read:ci/");
  breaker = service.token("breaker", "read:", "break:ci/");
  await service.acquire("ci/deploy", { owner: "runner-7" });
  await service.acquire("secret/payroll", { owner: "root" });
  // The service follows the file.
  for (const token of [viewer, breaker]) {
    await until("the file", () => service.ask("GET", "/whoami", { token }), ({ status }) => status === 200);
  }
});

after(async () => {
  await browser.close();
  await service.stop();
});

const signIn = async (token, hash = "") => {
  const context = await browser.newContext();
  context.setDefaultTimeout(TIMEOUT_MS);
  const page = await context.newPage();
  await page.goto(`${service.url}/${hash}`);
  await page.fill("#token", token);
  await page.getByRole("button", { name: "Sign in" }).click();
  return page;
};

const names = (page) => () => page.locator("#leases tbody .name a").allTextContents();

test("pages are empty before sign-in, and a wrong token is refused", async () => {
  const page = await signIn("lh_wrong");
  await until("refused", () => page.textContent("#log-in-problem"), (seen) => seen.includes("unknown"));
  assert.ok(await page.locator("#list").isHidden());
  await screenshot(page, "sign-in");
  await page.context().close();
});

test("a viewer sees what it may, no button, and gets 403", async () => {
  const page = await signIn(viewer);
  await until("its names", names(page), (seen) => seen.join() === "ci/deploy");
  assert.equal(await page.textContent("#user"), "viewer");
  assert.ok(await page.locator("#totals").isHidden());
  await page.click("text=ci/deploy");
  await page.locator(".holders tbody tr").waitFor();
  assert.equal(await page.getByRole("button", { name: "Break…" }).count(), 0);
  const status = await page.evaluate(async () => {
    const body = JSON.stringify({ force: true, reason: "because" });
    return (await fetch("locks/break?name=ci/deploy", { method: "POST", body })).status;
  });
  assert.equal(status, 403);
  assert.equal(await page.evaluate(() => document.cookie), "", "no script sees the cookie");
  // The list of what it may not see tells it so.
  await page.goto(`${service.url}/#/?prefix=secret/`);
  await until("why", () => page.textContent("#error"), (seen) => seen.includes("`read`"));
  assert.ok(!(await page.content()).includes("payroll"));
  await page.context().close();
});

test("the break button is shown only where the token may break leases", async () => {
  const page = await signIn(breaker, `#/lock/${encodeURIComponent("secret/payroll")}`);
  await page.locator(".holders tbody tr").waitFor();
  assert.equal(await page.getByRole("button", { name: "Break…" }).count(), 0);
  await page.goto(`${service.url}/#/lock/${encodeURIComponent("ci/deploy")}`);
  await page.getByRole("button", { name: "Break…" }).click();
  assert.ok(await page.locator("#now-label").isHidden());
  await page.context().close();
});

test("signing out ends the session, and the cookie is not the token", async () => {
  const page = await signIn(breaker);
  await until("its names", names(page), (seen) => seen.length === 2);
  const [cookie, ...others] = await page.context().cookies();
  assert.equal(others.length, 0);
  assert.equal(cookie.name, "leasehold-session");
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.path === "/");
  assert.ok(!cookie.value.includes(breaker.slice(12)) && !breaker.includes(cookie.value.slice(8)));
  const replay = async () => {
    const headers = { cookie: `${cookie.name}=${cookie.value}` };
    return (await fetch(`${service.url}/whoami`, { headers })).status;
  };
  assert.equal(await replay(), 200);
  await page.getByRole("button", { name: "Sign out" }).click();
  await until("its end", replay, (status) => status === 401);
  await page.locator("#log-in").waitFor();
  await page.reload();
  await page.locator("#log-in").waitFor();
  await page.context().close();
});

test("the kind of the store is shown only to users who may read the metrics", async () => {
  for (const [token, mayRead] of [[viewer, false], [breaker, true]]) {
    const page = await signIn(token);
    const refused = [];
    page.on("response", (answer) => {
      if (answer.url().endsWith("/metrics") && !answer.ok()) refused.push(answer.status());
    });
    const shown = mayRead ? /^Version [\d.]+, store: memory$/ : /^Version [\d.]+$/;
    await until("version", () => page.textContent("#version"), (seen) => shown.test(seen));
    assert.deepEqual(refused, []);
    await page.getByRole("button", { name: "Sign out" }).click();
    await until("signed out", () => page.textContent("#version"), (seen) => seen === "");
    await page.context().close();
  }
});
