// Breaks another holder's lease, after a confirmation.

import { breakLease } from "./api.js";
import { announce, find, formatTime, make, makeTime, setText } from "./dom.js";

let pending = null;

const details = (name, holder) => [
  make("dt", {}, "Name"), make("dd", { class: "mono" }, name),
  make("dt", {}, "Owner"), make("dd", {}, holder.owner),
  make("dt", {}, "Fence"), make("dd", { class: "mono" }, String(holder.fence)),
  make("dt", {}, "Held since"), make("dd", {}, makeTime(holder.acquireTime)),
];

// Asks whether to break this holder's lease. Calls `done` after it was broken.
export const confirmBreak = ({ kind, name, holder, may, done }) => {
  pending = { kind, name, holder, done };
  find("break-details").replaceChildren(...details(name, holder));
  find("reason").value = "";
  find("now").checked = false;
  find("now-label").hidden = !may("admin", name);
  find("break-problem").textContent = "";
  find("break").showModal();
  find("reason").focus();
};

const perform = async () => {
  const { kind, name, holder, done } = pending;
  const options = { fence: holder.fence, reason: find("reason").value.trim(), now: find("now").checked };
  const { broken, until } = await breakLease(kind, name, options);
  find("break").close();
  if (!broken) announce(`The lease of ${name} had already ended.`);
  else announce(until ? `${name} is broken. It is free at ${formatTime(until)} at the latest.` : `${name} is broken and free.`);
  done();
};

// Prepares the dialog. Must be called once.
export const prepare = () => {
  const dialog = find("break");
  find("break-cancel").addEventListener("click", () => dialog.close());
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const button = dialog.querySelector("button[type=submit]");
    button.disabled = true;
    perform()
      .catch((problem) => {
        setText(find("break-problem"), problem.message);
      })
      .finally(() => {
        button.disabled = false;
      });
  });
};
