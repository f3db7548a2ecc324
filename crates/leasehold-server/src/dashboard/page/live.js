// What happens, as it happens: one stream of events, which the browser resumes by the id of the last one it saw.

const KINDS = ["granted", "renewed", "released", "completed", "expired", "broken", "ended", "updated", "purged"];
// How long to wait before asking again when the service has refused the stream itself.
const AGAIN = 3000;
// For how long a page that nobody sees goes on listening: browsers have few connections for one service.
const UNSEEN = 60000;

export class Live {
  // `told` gets each event, `missed` is called when everything has to be loaded again, which is also at the start, and
  // `state` gets "live", "waiting" or "refused".
  constructor({ told, missed, state }) {
    this.told = told;
    this.missed = missed;
    this.state = state;
    this.prefix = null;
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.seen());
  }

  // Listens to names that start like this, and to no others.
  follow(prefix) {
    if (prefix === this.prefix && this.source) return;
    this.close();
    this.prefix = prefix;
    this.open();
  }

  open() {
    const source = new EventSource(`events?prefix=${encodeURIComponent(this.prefix)}`);
    this.source = source;
    let first = true;
    source.addEventListener("open", () => {
      this.state("live");
      // Subscribed first, loaded then: nothing falls between the two. Whoever comes back is told if it has missed some.
      if (first) this.missed();
      first = false;
    });
    source.addEventListener("error", () => {
      if (source !== this.source) return;
      if (source.readyState !== EventSource.CLOSED) {
        this.state("waiting");
        return;
      }
      this.state("refused");
      this.source = null;
      this.timer = setTimeout(() => this.open(), AGAIN);
    });
    source.addEventListener("missed", () => this.missed());
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => this.told(JSON.parse(event.data)));
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

  seen() {
    if (this.prefix === null) return;
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.close(), UNSEEN);
    else if (!this.source) this.open();
  }
}
