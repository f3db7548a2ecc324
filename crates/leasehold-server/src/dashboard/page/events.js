// Subscribes to events. The browser reconnects by itself, with the id of the last event that it received.

const KINDS = ["granted", "renewed", "released", "completed", "expired", "broken", "ended", "updated", "purged"];
// How long to wait before the next attempt if the service has refused the subscription.
const RETRY_DELAY = 3000;
// How long a hidden page stays subscribed. Browsers limit the connections to one service.
const HIDDEN_TIMEOUT = 60000;

export class EventSubscription {
  // `onEvent` gets each event. `onMissed` is called when everything has to be loaded again, also at the start. `onState`
  // gets "live", "waiting" or "refused".
  constructor({ onEvent, onMissed, onState }) {
    this.onEvent = onEvent;
    this.onMissed = onMissed;
    this.onState = onState;
    this.prefix = null;
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.visibilityChanged());
  }

  // Subscribes to the names with this prefix only.
  follow(prefix) {
    if (prefix === this.prefix && this.source) return;
    this.close();
    this.prefix = prefix;
    this.open();
  }

  open() {
    const source = new EventSource(`events?prefix=${encodeURIComponent(this.prefix)}`);
    this.source = source;
    let isFirst = true;
    source.addEventListener("open", () => {
      this.onState("live");
      // Load after subscribing, so that no change is lost in between. After a reconnect the service sends `missed` if
      // events were lost.
      if (isFirst) this.onMissed();
      isFirst = false;
    });
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      if (source.readyState !== EventSource.CLOSED) {
        this.onState("waiting");
        return;
      }
      this.onState("refused");
      this.source = null;
      this.timer = setTimeout(() => this.open(), RETRY_DELAY);
    });
    source.addEventListener("missed", () => this.onMissed());
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => this.onEvent(JSON.parse(event.data)));
    }
  }

  close() {
    clearTimeout(this.timer);
    if (this.source) this.source.close();
    this.source = null;
  }

  stop() {
    this.close();
    this.prefix = null;
  }

  pause() {
    this.close();
    this.onState("waiting");
  }

  visibilityChanged() {
    if (this.prefix === null) return;
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.pause(), HIDDEN_TIMEOUT);
    else if (!this.source) this.open();
  }
}
