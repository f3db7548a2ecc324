// Ending somebody's lease: asks first, and says what it means.

import { breakLease } from "./api.js";
import { announce, clock, find, make, say } from "./words.js";

let asking = null;

const about = (name, holder) => [
  make("dt", {}, "Name"), make("dd", { class: "mono" }, name),
  make("dt", {}, "Owner"), make("dd", {}, holder.owner),
  make("dt", {}, "Fence"), make("dd", { class: "mono" }, String(holder.fence)),
  make("dt", {}, "Held since"), make("dd", {}, clock(holder.acquireTime)),
];

// Asks whether to break this holder's lease. `done` is called once it is broken.
export const askToBreak = ({ kind, name, holder, may, done }) => {
  asking = { kind, name, holder, done };
  find("break-about").replaceChildren(...about(name, holder));
  find("reason").value = "";
  find("now").checked = false;
  find("now-label").hidden = !may("admin", name);
  find("break-problem").textContent = "";
  find("break").showModal();
  find("reason").focus();
};

const perform = async () => {
  const { kind, name, holder, done } = asking;
  const how = { fence: holder.fence, reason: find("reason").value.trim(), now: find("now").checked };
  const { broken, until } = await breakLease(kind, name, how);
  find("break").close();
  if (!broken) announce(`Nobody held ${name} any more.`);
  else announce(until ? `${name} is broken. It is free at ${clock(until)} at the latest.` : `${name} is broken, and free.`);
  done();
};

// To be called once.
export const prepare = () => {
  const dialog = find("break");
  find("break-cancel").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const button = dialog.querySelector("button[type=submit]");
    button.disabled = true;
    perform()
      .catch((problem) => {
        say(find("break-problem"), problem.message);
      })
      .finally(() => {
        button.disabled = false;
      });
  });
};
