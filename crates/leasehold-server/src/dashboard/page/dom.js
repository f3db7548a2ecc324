// Creates elements, and formats numbers and times. All contents are set as text, so that none can become markup.

const SVG = "http://www.w3.org/2000/svg";

// Invisible characters, and those that change how the text around them is displayed: controls, zero-width and
// bidirectional ones, tags. Tabs and line breaks are kept. The command line escapes the same ones.
const HIDDEN = /[\0-\x08\v-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

const codePoint = (character) => character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// Returns a text with its hidden characters as `⟨U+202E⟩`, because names, owners and bodies are not trusted.
export const escapeHidden = (text) => text.replace(HIDDEN, (character) => `⟨U+${codePoint(character)}⟩`);

const escapeText = (child) => (typeof child === "string" ? escapeHidden(child) : child);

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, name === "href" ? value : escapeText(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(escapeText));
  return element;
};

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const makeSvg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const find = (id) => document.getElementById(id);

// Sets a text only if it differs, so that it is not laid out or read out again.
export const setText = (element, text) => {
  const escaped = escapeHidden(text);
  if (element.textContent !== escaped) element.textContent = escaped;
};

const NUMBERS = new Intl.NumberFormat("en");

export const formatCount = (number) => NUMBERS.format(number);

export const plural = (number, one, many) => `${formatCount(number)} ${number === 1 ? one : many}`;

const twoDigits = (number) => String(number).padStart(2, "0");

// Formats a duration in milliseconds with at most two units.
export const formatDuration = (millis) => {
  const seconds = millis / 1000;
  if (millis < 1000) return `${Math.max(0, Math.round(millis))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${twoDigits(Math.floor(seconds % 60))} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${twoDigits(minutes % 60)} m`;
  return `${formatCount(Math.floor(hours / 24))} d ${hours % 24} h`;
};

// Formats a remaining time, with whole seconds.
export const formatTimeLeft = (millis) => (millis < 60000 ? `${Math.max(0, Math.ceil(millis / 1000))} s` : formatDuration(millis));

// Formats a duration that grows, with whole seconds.
export const formatTimeHeld = (millis) => (millis < 60000 ? `${Math.floor(millis / 1000)} s` : formatDuration(millis));

const dateOf = (date) => `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;

// Returns the offset of the local time zone at a time, which depends on summer time.
const zoneOf = (date) => {
  const offset = -date.getTimezoneOffset();
  const minutes = Math.abs(offset);
  return offset === 0 ? "UTC" : `UTC${offset < 0 ? "-" : "+"}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
};

// Formats the hours, minutes and seconds of a time in the local time zone.
export const formatClock = (time) => {
  const date = new Date(time);
  return `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}:${twoDigits(date.getSeconds())}`;
};

// Formats a time in the local time zone, with the date and the zone if it is not today.
export const formatTime = (time) => {
  const date = new Date(time);
  if (date.toDateString() === new Date().toDateString()) return formatClock(time);
  return `${dateOf(date)} ${formatClock(time)} ${zoneOf(date)}`;
};

// Formats a time with its date and zone, for tooltips.
export const formatFullTime = (time) => {
  const date = new Date(time);
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const zone = zoneOf(date);
  return `${dateOf(date)} ${formatClock(time)} ${zone}${timeZone && timeZone !== zone ? ` (${timeZone})` : ""}`;
};

// Returns an element that shows a time, with its date and zone in a tooltip.
export const makeTime = (time) => make("time", { title: formatFullTime(time) }, formatTime(time));

// Announces a text to users of screen readers.
export const announce = (text) => {
  find("announce").textContent = escapeHidden(text);
};

export const ENDINGS = {
  released: "released",
  completed: "completed",
  expired: "expired",
  broken: "broken",
  unknown: "ended, reason unknown",
  ended: "ended",
  holding: "holding",
};
