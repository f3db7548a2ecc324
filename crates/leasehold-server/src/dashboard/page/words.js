// Elements, and numbers and times as people read them. Everything is set as text: nothing that is shown can become markup.

const SVG = "http://www.w3.org/2000/svg";

// Characters that change how the text around them looks, or look like nothing: controls, zero-width and bidirectional ones,
// tags. Tabs and line breaks stay. The command line has the same.
const HIDDEN = /[\0-\x08\v-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

const code = (character) => character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// A text with its hidden characters as `⟨U+202E⟩`: names, owners and bodies are chosen by strangers.
export const visible = (text) => text.replace(HIDDEN, (character) => `⟨U+${code(character)}⟩`);

const shown = (child) => (typeof child === "string" ? visible(child) : child);

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, name === "href" ? value : shown(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(shown));
  return element;
};

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const find = (id) => document.getElementById(id);

// Sets a text only if it is another one, so that nothing is laid out or read out in vain.
export const say = (element, text) => {
  const seen = visible(text);
  if (element.textContent !== seen) element.textContent = seen;
};

const NUMBERS = new Intl.NumberFormat("en");

export const count = (number) => NUMBERS.format(number);

export const several = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

const two = (number) => String(number).padStart(2, "0");

// A span in milliseconds, in at most two units.
export const span = (millis) => {
  const seconds = millis / 1000;
  if (millis < 1000) return `${Math.max(0, Math.round(millis))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${two(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${two(minutes % 60)} m`;
  return `${count(Math.floor(hours / 24))} d ${hours % 24} h`;
};

// Time left, in whole seconds: it is looked at while it shrinks.
export const left = (millis) => (millis < 60000 ? `${Math.max(0, Math.ceil(millis / 1000))} s` : span(millis));

// A moment as the clock on the wall shows it, with the day if that is not today.
export const clock = (time) => {
  const moment = new Date(time);
  const hours = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  if (moment.toDateString() === new Date().toDateString()) return hours;
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${hours}`;
};

// Tells those who do not see the page.
export const announce = (text) => {
  find("announce").textContent = visible(text);
};

export const ENDINGS = {
  released: "released",
  completed: "completed",
  expired: "expired",
  broken: "broken",
  unknown: "ended, nobody knows how",
  holding: "holds it",
};
