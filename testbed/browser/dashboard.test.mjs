// The dashboard as an operator uses it: it shows changes by other clients, and its actions take effect.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { TIMEOUT_MS, Service, screenshot, startBrowser, until } from "./support.mjs";

let browser;
let service;
let context;
let page;
// What the page complained about in its console: nothing, ever.
let complaints;

before(async () => {
  browser = await startBrowser();
});

after(() => browser.close());

const open = async (options = {}) => {
  if (context) await context.close();
  context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(TIMEOUT_MS);
  page = await context.newPage();
  complaints = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    // That a request was refused is said by the browser itself.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) complaints.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(service.url)) complaints.push(`asked elsewhere: ${request.url()}`);
  });
};

const visit = async (hash = "") => {
  await page.goto(`${service.url}/${hash}`);
};

const row = (name) => page.locator(`#leases tbody tr:has(a[title="${name}"])`);
const cell = (name, column) => row(name).locator(`.${column}`);
const rows = () => page.locator("#leases tbody tr:not(.spacer)");
const names = () => page.locator("#leases tbody .name a").allTextContents();
const hows = () => page.locator(".timeline g[data-how]").evaluateAll((all) => all.map((one) => one.dataset.how));
const shows = (name, column, text) =>
  until(`${name}: ${column}`, () => cell(name, column).allTextContents(), ([seen]) => seen === text);

beforeEach(async () => {
  service = await Service.start();
  await open();
});

afterEach(async () => {
  await context.close();
  context = null;
  await service.stop();
  assert.deepEqual(complaints, []);
});

test("the table shows changes by other clients", async () => {
  const fence = await service.acquire("nightly", { owner: "web-1" });
  await visit();
  await shows("nightly", "owner", "web-1");
  await shows("nightly", "state", "held");
  await shows("nightly", "fence", String(fence));
  await service.ask("POST", `/locks/${fence}?name=nightly`, { body: "step 3" });
  await shows("nightly", "body", "step 3");
  await service.release("nightly", fence);
  await shows("nightly", "state", "free");
  await service.acquire("nightly", { owner: "web-2", ttl: "1h" });
  await shows("nightly", "owner", "web-2");
  // A name that was not there before, between two that were.
  await service.acquire("a", { owner: "web-3" });
  await service.acquire("b & <b>", { owner: "web-3" });
  await until("order", names, (seen) => seen.join() === "a,b & <b>,nightly");
  await service.ask("PUT", "/items/order-17?state=REQUESTED", { body: "three apples" });
  await shows("order-17", "state", "REQUESTED, free");
  await shows("order-17", "body", "three apples");
  await screenshot(page, "table");
});

test("hidden characters of foreign text are made visible", async () => {
  // Reversed text, a zero-width space and an escape: without marks it reads as another name.
  const name = "pay\u202eroll\u200b";
  const fence = await service.acquire(name, { owner: encodeURIComponent("web\u2066\u001b[31m") });
  await service.ask("POST", `/locks/${fence}?name=${encodeURIComponent(name)}`, { body: "a\u202eb\nnext\tline" });
  await visit();
  await until("name", names, ([seen]) => seen === "pay⟨U+202E⟩roll⟨U+200B⟩");
  const owner = () => page.locator("#leases tbody .owner").allTextContents();
  await until("owner", owner, (seen) => seen.includes("web⟨U+2066⟩⟨U+001B⟩[31m"));
  await page.locator("#leases tbody .name a").click();
  const body = () => page.locator("pre.body").textContent();
  await until("body", body, (seen) => seen === "a⟨U+202E⟩b\nnext\tline");
  assert.equal(await page.locator("#lease-title").textContent(), "pay⟨U+202E⟩roll⟨U+200B⟩");
  assert.equal(await page.title(), "pay⟨U+202E⟩roll⟨U+200B⟩ – Leasehold");
});

test("the bar shrinks, and a lease that is not renewed expires", async () => {
  await service.acquire("short", { ttl: "4s" });
  await visit();
  const part = async () => Number(await cell("short", "left").locator(".bar").getAttribute("data-part"));
  const first = await part();
  assert.ok(first > 0 && first <= 1, `${first}`);
  const width = async () => (await cell("short", "left").locator(".bar i").boundingBox()).width;
  const wide = await width();
  await until("the bar", part, (seen) => seen < first);
  await until("its width", width, (seen) => seen < wide);
  await until("expiring", () => row("short").getAttribute("data-status"), (seen) => seen === "expiring");
  await until("free", () => row("short").getAttribute("data-status"), (seen) => seen === "free");
  await page.click("text=short");
  await page.locator('.timeline [data-how="expired"]').waitFor();
});

test("waiters are counted", async () => {
  await service.acquire("busy");
  const waiting = service.acquire("busy", { owner: "web-2", more: "&wait=30s" });
  await visit();
  await shows("busy", "waiters", "1");
  const { json } = await service.ask("GET", "/locks/busy");
  await service.release("busy", json.holders[0].fence);
  await waiting;
  await shows("busy", "owner", "web-2");
  await shows("busy", "waiters", "");
});

test("search and filters are kept in the address", async () => {
  await service.acquire("ci/deploy");
  await service.acquire("ci/test", { ttl: "1h" });
  const fence = await service.acquire("jobs/report");
  await service.release("jobs/report", fence);
  await service.ask("PUT", "/items/order-1?state=NEW");
  await service.ask("POST", "/gates/device-42?every=1h&owner=web-9");
  await visit();
  await until("all", names, (seen) => seen.join() === "ci/deploy,ci/test,jobs/report,order-1");
  await page.fill("#prefix", "ci/");
  await until("by prefix", names, (seen) => seen.join() === "ci/deploy,ci/test");
  await service.acquire("ci/new");
  await service.acquire("other");
  await until("new ones too", names, (seen) => seen.join() === "ci/deploy,ci/new,ci/test");
  await page.reload();
  await until("after a reload", names, (seen) => seen.join() === "ci/deploy,ci/new,ci/test");
  assert.equal(await page.inputValue("#prefix"), "ci/");
  await page.fill("#prefix", "");
  await page.selectOption("#show", "free");
  await until("free", names, (seen) => seen.join() === "jobs/report,order-1");
  await page.selectOption("#show", "held");
  await until("held", names, (seen) => seen.join() === "ci/deploy,ci/new,ci/test,other");
  await page.selectOption("#show", "all");
  await page.fill("#state", "NEW");
  await until("by state", names, (seen) => seen.join() === "order-1");
  await page.fill("#state", "");
  await page.selectOption("#kind", "gate");
  await until("gates", names, (seen) => seen.join() === "device-42");
  await page.fill("#prefix", "nothing like that");
  await page.locator("#empty").waitFor();
});

const sortBy = (title) => page.getByRole("columnheader", { name: title }).getByRole("button").click();
const sorts = () => page.locator("#leases thead th").evaluateAll((all) =>
  all.filter((one) => one.ariaSort).map((one) => `${one.textContent} ${one.ariaSort}`).join());

test("the table is sorted by any column, and the address keeps the order", async () => {
  await service.acquire("a", { owner: "web-2", ttl: "2h" });
  await service.acquire("b", { owner: "web-3", ttl: "1h" });
  await service.release("c", await service.acquire("c", { owner: "web-9" }));
  await service.acquire("d", { owner: "web-1", ttl: "3h" });
  await visit();
  await until("by name", names, (seen) => seen.join() === "a,b,c,d");
  assert.equal(await sorts(), "Name ascending");
  await until("counted", () => page.textContent("#announce"), (seen) => seen === "4 leases");
  await sortBy("Owner");
  // A free lease has no owner, so it is last in both directions.
  await until("by owner", names, (seen) => seen.join() === "d,a,b,c");
  assert.equal(await sorts(), "Owner ascending");
  await until("announced", () => page.textContent("#announce"), (seen) => seen === "Sorted by Owner, ascending");
  await sortBy("Owner");
  await until("descending", names, (seen) => seen.join() === "b,a,d,c");
  await page.reload();
  await until("after a reload", names, (seen) => seen.join() === "b,a,d,c");
  assert.equal(await sorts(), "Owner descending");
  // New rows and changed ones move to their places.
  await service.acquire("e", { owner: "web-25", ttl: "4h" });
  await service.acquire("c", { owner: "web-4", ttl: "30m" });
  await until("changes", names, (seen) => seen.join() === "c,b,e,a,d");
  await page.fill("#prefix", "d");
  await until("filtered", names, (seen) => seen.join() === "d");
  await page.fill("#prefix", "");
  await until("filter and order", names, (seen) => seen.join() === "c,b,e,a,d");
  await sortBy("Owner");
  await until("back to names", names, (seen) => seen.join() === "a,b,c,d,e");
  for (const [title, order] of [["Name", "e,d,c,b,a"], ["Time left", "c,b,a,d,e"], ["Fence", "e,d,c,b,a"], ["State", "a,b,c,d,e"]]) {
    await sortBy(title);
    await until(title, names, (seen) => seen.join() === order);
  }
  assert.equal(await sorts(), "State ascending");
});

test("held for grows, and starts again with the next holder", async () => {
  await service.acquire("old", { owner: "web-1" });
  const fence = await service.acquire("passed on", { owner: "web-2" });
  await visit();
  const seconds = async (name) => {
    const [text] = await cell(name, "held").allTextContents();
    return /^\d+ s$/.test(text) ? Number(text.split(" ")[0]) : NaN;
  };
  await until("counted", () => seconds("passed on"), (seen) => seen >= 3);
  assert.match(await cell("old", "held").getAttribute("title"), /^web-1 since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/);
  await service.release("passed on", fence);
  await shows("passed on", "held", "");
  await service.acquire("passed on", { owner: "web-3" });
  await until("again", () => seconds("passed on"), (seen) => seen < 3);
  // It comes from the record, not from when the page was opened.
  await page.reload();
  await until("after a reload", () => seconds("old"), (seen) => seen >= 3);
  await sortBy("Held for");
  await until("sorted", names, (seen) => seen.join() === "old,passed on");
  await until("descending", sorts, (seen) => seen === "Held for descending");
  await sortBy("Held for");
  await until("ascending", names, (seen) => seen.join() === "passed on,old");
});

test("free leases show how and when the last holder's lease ended", async () => {
  const breakNow = (fence) => JSON.stringify({ force: true, fence, reason: "stuck", now: true });
  await service.release("released", await service.acquire("released", { owner: "web-1" }));
  const second = await service.acquire("completed", { owner: "web-2" });
  await service.ask("POST", `/locks/${second}?name=completed&release=true`, { body: "all done" });
  const third = await service.acquire("broken", { owner: "web-3" });
  await service.ask("POST", "/locks/broken/break", { body: breakNow(third) });
  await service.acquire("expired", { owner: "web-4", ttl: "500ms" });
  await service.ask("PUT", "/items/untouched?state=NEW");
  await service.acquire("held", { owner: "web-5" });
  await visit();
  const ending = (name) => async () => (await cell(name, "left").locator(".time").textContent()).replace(/\d\d:\d\d:\d\d$/, "TIME");
  for (const how of ["released", "completed", "broken", "expired"]) {
    await until(how, ending(how), (seen) => seen === `${how} TIME`);
  }
  assert.equal(await ending("untouched")(), "");
  assert.match(await cell("expired", "left").getAttribute("title"), /^web-4: expired \d\d/);
  await sortBy("Time left");
  await until("the last one first", names, (seen) => seen.join() === "held,expired,broken,completed,released,untouched");
  await sortBy("Time left");
  await until("the first one first", names, (seen) => seen.join() === "held,released,completed,broken,expired,untouched");
  // By an event, without loading the record again.
  const { json } = await service.ask("GET", "/locks/held");
  await service.release("held", json.holders[0].fence);
  await until("by an event", ending("held"), (seen) => seen === "released TIME");
});

test("times show their zone in a tooltip, and with their date if they are not from today", async () => {
  await service.acquire("job", { owner: "web-1", ttl: "4h" });
  await service.release("done", await service.acquire("done", { owner: "web-2" }));
  await open({ timezoneId: "Asia/Kolkata" });
  const zone = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+05:30 \(Asia\/(Kolkata|Calcutta)\)/;
  await visit();
  await shows("job", "owner", "web-1");
  assert.match(await cell("done", "left").getAttribute("title"), zone);
  assert.match(await cell("job", "held").getAttribute("title"), zone);
  await page.click("text=job");
  const since = page.locator(".holders td").nth(3);
  await until("since", () => since.textContent(), (seen) => /^\d\d:\d\d:\d\d$/.test(seen));
  assert.match(await since.getAttribute("title"), zone);
  await until("list", () => page.locator(".periods li").first().getAttribute("title"), (seen) => zone.test(seen));
  // The next day.
  await page.clock.setFixedTime(Date.now() + 86400000);
  await page.evaluate(() => document.querySelector("nav a").click());
  const dated = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+05:30$/;
  const ended = () => cell("done", "left").locator(".time").textContent();
  await until("dated", ended, (seen) => seen.startsWith("released ") && dated.test(seen.slice(9)));
  await page.click("text=job");
  await until("since, dated", () => page.locator(".holders td").nth(3).textContent(), (seen) => dated.test(seen));
  await screenshot(page, "dated");
});

test("the keyboard sorts, and its focus stays on a row that moves", async () => {
  for (const [name, owner] of [["a", "web-2"], ["b", "web-3"], ["c", "web-4"]]) await service.acquire(name, { owner });
  await visit("#/?sort=-owner");
  await until("loaded", names, (seen) => seen.join() === "c,b,a");
  await page.getByRole("button", { name: "Owner" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("Space");
  await until("ascending", names, (seen) => seen.join() === "a,b,c");
  assert.equal(await sorts(), "Owner ascending");
  await page.keyboard.press("/");
  await page.keyboard.press("ArrowDown");
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  assert.equal(await focused(), "a");
  const { json } = await service.ask("GET", "/locks/a");
  await service.release("a", json.holders[0].fence);
  await service.acquire("a", { owner: "web-9" });
  await until("moved", names, (seen) => seen.join() === "b,c,a");
  assert.equal(await focused(), "a");
  await page.keyboard.press("ArrowUp");
  assert.equal(await focused(), "c");
});

test("sorting includes leases that were not loaded yet", async () => {
  await service.acquireMany(2500, (number) => `job-${String(number).padStart(4, "0")}`);
  await service.acquire("zz", { owner: "another" });
  await visit();
  await until("the first page", names, (seen) => seen[0] === "job-0000");
  await sortBy("Owner");
  await until("all", () => page.textContent("#count"), (seen) => seen === "2,501 leases");
  await until("the last name", names, (seen) => seen[0] === "zz" && seen[1] === "job-0000");
  await page.locator("#scroll").evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await until("the end", names, (seen) => seen.at(-1) === "job-2499");
  assert.ok((await rows().count()) < 120);
});

test("overdue leases can be listed", async () => {
  await service.acquire("calm");
  await service.acquire("late", { ttl: "3s" });
  await visit("#/?show=expiring");
  await until("expiring", names, (seen) => seen.join() === "late");
});

test("break asks for confirmation, and then breaks the lease", async () => {
  const fence = await service.acquire("nightly", { owner: "web-1" });
  await visit("#/lock/nightly");
  await page.getByRole("button", { name: "Break…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  assert.match(await dialog.textContent(), new RegExp(`nightly.*web-1.*${fence}`));
  await page.getByRole("button", { name: "Keep it" }).click();
  await dialog.waitFor({ state: "hidden" });
  assert.equal((await service.ask("GET", "/locks/nightly")).json.holders[0].broken, undefined);

  await page.getByRole("button", { name: "Break…" }).click();
  // Without a reason nothing happens.
  await page.getByRole("button", { name: "Break the lease" }).click();
  assert.ok(await dialog.isVisible());
  await page.fill("#reason", "its machine is gone");
  await screenshot(page, "break");
  await page.getByRole("button", { name: "Break the lease" }).click();
  await dialog.waitFor({ state: "hidden" });
  await until("broken", () => page.textContent("#status"), (seen) => seen.startsWith("Broken"));
  const { json } = await service.ask("GET", "/locks/nightly");
  assert.equal(json.holders[0].broken, "its machine is gone");
  await page.locator('.timeline [data-how="broken"]').waitFor();
  await until("told", () => page.textContent("#announce"), (seen) => seen.includes("nightly is broken"));
});

test("the page of a lease draws its holders and is updated", async () => {
  const first = await service.acquire("job", { owner: "web-1" });
  await service.release("job", first);
  const second = await service.acquire("job", { owner: "web-2" });
  await service.ask("POST", `/locks/${second}?name=job&release=true`, { body: "all done" });
  await service.acquire("job", { owner: "web-3", ttl: "500ms" });
  const fourth = await service.acquire("job", { owner: "web-4", more: "&wait=30s" });
  await visit("#/lock/job");
  await until("drawn", hows, (seen) => seen.join() === "released,completed,expired,holding");
  assert.equal(await page.textContent("pre.body"), "all done");
  const how = JSON.stringify({ force: true, fence: fourth, reason: "stuck", now: true });
  await service.ask("POST", "/locks/job/break", { body: how });
  await until("broken", hows, (seen) => seen[3] === "broken");
  await service.acquire("job", { owner: "web-5" });
  await until("taken again", hows, (seen) => seen.length === 5 && seen[4] === "holding");
  assert.equal(await page.locator(".periods li").count(), 5);
  await screenshot(page, "lease");
});

test("the last holder in a record is drawn after a restart of the service", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "leasehold-browser-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const store = `sqlite:${join(folder, "leases.db")}`;
  await service.stop();
  service = await Service.start({ store });
  await service.release("job", await service.acquire("job", { owner: "web-1" }));
  await service.acquire("kept", { owner: "web-2" });
  await service.stop();
  service = await Service.start({ store });
  await visit("#/lock/job");
  await until("the last", hows, (seen) => seen.join() === "released");
  await until("its owner", () => page.textContent(".periods"), (seen) => seen.startsWith("web-1: released at"));
  await visit("#/lock/kept");
  await until("who holds it", hows, (seen) => seen.join() === "holding");
});

test("every action works with the keyboard", async () => {
  for (const name of ["a", "b", "c"]) await service.acquire(name);
  await visit();
  await until("loaded", names, (seen) => seen.length === 3);
  const focused = () => page.evaluate(() => document.activeElement.textContent);
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "prefix");
  await page.keyboard.press("ArrowDown");
  assert.equal(await focused(), "a");
  await page.keyboard.press("End");
  assert.equal(await focused(), "c");
  await page.keyboard.press("ArrowUp");
  assert.equal(await focused(), "b");
  await page.keyboard.press("Enter");
  await page.locator("#lease-title").waitFor();
  assert.equal(await focused(), "b");
  assert.equal(await page.evaluate(() => document.activeElement.id), "lease-title");
  await page.keyboard.press("Escape");
  await until("back", () => page.evaluate(() => document.activeElement.tagName + document.activeElement.textContent), (seen) => seen === "Ab");
  // As others hear it.
  const table = page.getByRole("table", { name: "Leases" });
  assert.equal(await table.getByRole("columnheader").count(), 9);
  assert.equal(await table.getByRole("rowheader").count(), 3);
  assert.equal(await table.getAttribute("aria-rowcount"), "4");
});

test("after another service has taken over, everything is loaded again", async () => {
  await service.acquire("before");
  await visit();
  await until("before", names, (seen) => seen.join() === "before");
  const { port } = service;
  await service.stop();
  await until("lost", () => page.getAttribute("#connection", "data-state"), (seen) => seen !== "live");
  service = await Service.start({ port });
  await service.acquire("after");
  await until("after", names, (seen) => seen.join() === "after");
  await until("live", () => page.getAttribute("#connection", "data-state"), (seen) => seen === "live");
  await until("heard", () => page.textContent("#announce"), (seen) => seen === "Connected again.");
});

test("the page says of when its state is while it is disconnected, and recovers by itself", async () => {
  await busyMorning();
  for (const colorScheme of ["light", "dark"]) {
    const { port } = service;
    await open({ colorScheme, viewport: { width: 390, height: 800 } });
    await visit();
    const connection = () => page.textContent("#connection");
    await until("live", connection, (seen) => seen === "Live");
    await until("loaded", names, (seen) => seen.length > 0);
    const opacity = () => page.locator("#leases").evaluate((element) => getComputedStyle(element).opacity);
    assert.equal(await opacity(), "1");
    const before = Date.now();
    await service.stop();
    const lost = await until("lost", connection, (seen) => /^Disconnected, showing the state of \d\d:\d\d:\d\d$/.test(seen));
    const shown = Date.parse(await page.getAttribute("#connection", "title").then((title) => title.replace(/ UTC.*/, "")));
    assert.ok(shown >= before - 1000 && shown <= Date.now(), lost);
    assert.ok(Number(await opacity()) < 1);
    await until("announced", () => page.textContent("#announce"), (seen) => seen.startsWith("Disconnected, "));
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(over <= 0, `${over} pixels too wide`);
    // The rows stay readable, and a failed load adds no second message.
    assert.ok((await names()).length > 0);
    assert.ok(await page.isHidden("#error"));
    await screenshot(page, `disconnected-${colorScheme}`);
    service = await Service.start({ port });
    await service.acquire(`after-${colorScheme}`);
    await until("live again", connection, (seen) => seen === "Live");
    await until("its rows", names, (seen) => seen.join() === `after-${colorScheme}`);
    assert.equal(await opacity(), "1");
    assert.equal(await page.getAttribute("#connection", "title"), "");
  }
});

test("the version of the service and the kind of its store are shown", async () => {
  const version = execFileSync(process.env.LEASEHOLD, ["--version"], { encoding: "utf8" }).trim().split(" ")[1];
  await visit();
  await until("version", () => page.textContent("#version"), (seen) => seen === `Version ${version}, store: memory`);
});

test("the page of the API leads back to the dashboard", async () => {
  await service.acquire("job");
  await visit();
  await page.getByRole("link", { name: "API" }).click();
  await page.getByRole("heading", { name: "Leasehold" }).waitFor();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await screenshot(page, `docs-${colorScheme}`);
  }
  await page.getByRole("link", { name: "Dashboard" }).click();
  await until("the dashboard", names, (seen) => seen.join() === "job");
  assert.equal(new URL(page.url()).pathname, "/");
});

test("totals of the last hour are shown", async () => {
  await service.acquire("a");
  await service.acquire("b");
  await service.ask("POST", "/locks/a?nonce=other");
  await visit();
  const total = (id) => () => page.textContent(id);
  await until("held", total("#total-held"), (seen) => seen === "2");
  await until("grants", total("#chart-grants b"), (seen) => seen === "2");
  await until("refused", total("#chart-refusals b"), (seen) => seen === "1");
  const label = await page.locator("#chart-grants svg").getAttribute("aria-label");
  assert.match(label, /Grants in the last hour: 2/);
});

// Something to look at.
const busyMorning = async () => {
  await service.release("backups/database", await service.acquire("backups/database", { owner: "db-1:4711" }));
  const held = [
    ["ci/deploy/production", "runner-7", "2m"], ["ci/test", "runner-3", "5m"], ["index/products", "search-2:77", "40s"],
    ["nightly-report", "web-1:812", "30s"], ["payments/settle", "pay-1:20", "1m"], ["scheduler", "web-2:640", "15s"],
  ];
  for (const [name, owner, ttl] of held) {
    const fence = await service.acquire(name, { owner, ttl });
    await service.ask("POST", `/locks/${fence}?name=${encodeURIComponent(name)}`, { body: `step ${name.length}` });
  }
  for (const owner of ["train-1", "train-2"]) await service.acquire("gpu", { owner, ttl: "1m", more: "&mode=shared&limit=4" });
  for (const number of [1017, 1018, 1019]) {
    await service.ask("PUT", `/items/order-${number}?state=REQUESTED`, { body: `{"sku": ${number % 7}}` });
  }
  await service.ask("POST", "/claims?state=REQUESTED&limit=1&owner=worker-4&ttl=45s");
  await service.ask("POST", "/locks/scheduler?nonce=other");
  const broken = await service.acquire("device-42/firmware", { owner: "edge-eu-1", ttl: "1m" });
  await service.ask("POST", "/locks/break?name=device-42/firmware", { body: JSON.stringify({ force: true, fence: broken, reason: "unplugged" }) });
};

test("the page works in wide and narrow windows, in both themes, and without motion", async () => {
  await busyMorning();
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of [["wide", { width: 1440, height: 900 }], ["narrow", { width: 390, height: 800 }]]) {
      await open({ colorScheme, viewport, reducedMotion: "reduce" });
      await visit();
      await shows("ci/test", "owner", "runner-3");
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${size}: ${over} pixels too wide`);
      const motion = await page.locator(".bar i").first().evaluate((bar) => getComputedStyle(bar).transitionDuration);
      assert.equal(motion, "0s");
      await screenshot(page, `list-${colorScheme}-${size}`);
      await page.goto(`${service.url}/#/lock/${encodeURIComponent("backups/database")}`);
      await page.locator('.timeline [data-how="released"]').waitFor();
      await screenshot(page, `lease-${colorScheme}-${size}`);
    }
  }
});

test("of a hundred thousand leases, only the visible ones are in the document", async () => {
  const all = 100000;
  await service.acquireMany(all, (number) => `job-${String(number).padStart(6, "0")}`);
  await visit();
  await until("the first", names, (seen) => seen[0] === "job-000000");
  const inDocument = async () => {
    const many = await rows().count();
    assert.ok(many < 120, `${many} rows`);
  };
  await inDocument();
  // What the script takes for granted.
  assert.equal((await rows().first().boundingBox()).height, 30);
  const box = page.locator("#scroll");
  // Down as fast as pages come, until a good part was loaded; then back to the top in one jump.
  const last = async () => {
    await box.evaluate((element) => element.scrollTo(0, element.scrollHeight));
    await inDocument();
    return (await names()).at(-1);
  };
  await until("far down", last, (seen) => seen > "job-005000");
  await screenshot(page, "many");
  await box.evaluate((element) => element.scrollTo(0, 0));
  await until("the top again", names, (seen) => seen[0] === "job-000000");
  await page.fill("#prefix", "job-09999");
  await until("the end", names, (seen) => seen.length === 10 && seen[9] === "job-099999");
  await page.fill("#prefix", "");
  await sortBy("Name");
  await until("the last first", names, (seen) => seen[0] === "job-099999");
  await until("all of them", () => page.textContent("#count"), (seen) => seen === "100,000 leases");
  await inDocument();
  await until("all are held", () => page.textContent("#total-held"), (seen) => seen === "100,000");
  await screenshot(page, "many-found");
});
