//! Every metric there is. `docs/reference/metrics.md` has the same list, and a test compares them.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::engine::{ENDINGS, FAILURES};
use leasehold::wire::Trouble;

use super::Asked;
use super::text::{Page, Type};
use crate::audit::Audit;
use crate::service::Service;

impl Service {
    /// All metrics, as they are now.
    pub(super) fn page(&self) -> String {
        let mut page = Page::default();
        self.requests(&mut page);
        self.leases(&mut page);
        self.store(&mut page);
        self.audit(&mut page);
        self.clock(&mut page);
        self.clients(&mut page);
        page.into_text()
    }

    fn requests(&self, page: &mut Page) {
        let metrics = &self.metrics;
        let store = &*self.config.store;
        let help = "Requests answered, by what was asked and what came of it.";
        let mut answered = page.metric("leasehold_requests_total", Type::Counter, help);
        for (asked, outcomes) in Asked::ALL.iter().zip(&metrics.answered) {
            let words = Trouble::ALL.iter().map(|trouble| trouble.as_str());
            for (outcome, count) in ["ok"].into_iter().chain(words).zip(outcomes) {
                // What never happened is told of only as far as somebody will ask for its rate.
                if outcome == "ok" || count.get() > 0 {
                    let labels = [("operation", asked.as_str()), ("outcome", outcome)];
                    answered.value(&labels, count.get());
                }
            }
        }
        let help = "How long requests took, waiting in line included.";
        let mut took = page.metric("leasehold_request_duration_seconds", Type::Spans, help);
        for (asked, spans) in Asked::ALL.iter().zip(&metrics.took) {
            took.histogram(&[("store", store), ("operation", asked.as_str())], spans);
        }
        let help = "How long those took that were ready to wait in line, whatever they got.";
        let mut waited = page.metric("leasehold_wait_duration_seconds", Type::Spans, help);
        waited.histogram(&[], &metrics.waited);
    }

    fn leases(&self, page: &mut Page) {
        let stats = self.engine.stats();
        let measures = self.engine.measures();
        let help = "Who waits in line for a lease now.";
        let mut waiters = page.metric("leasehold_waiters", Type::Gauge, help);
        waiters.value(&[], stats.waiters);
        let help = "Leases held now, of the names in the cache of this service.";
        let mut held = page.metric("leasehold_held_leases", Type::Gauge, help);
        held.value(&[], self.engine.held());
        let help = "How long leases were held whose end this service wrote, by how they ended.";
        let mut spans = page.metric("leasehold_hold_duration_seconds", Type::Spans, help);
        for (how, span) in ENDINGS.iter().zip(&measures.held) {
            spans.histogram(&[("how", how)], span);
        }
        let help = "Leases that ended against their holder's will: expired, or broken.";
        let mut lost = page.metric("leasehold_lost_leases_total", Type::Counter, help);
        for (how, span) in ENDINGS.iter().zip(&measures.held) {
            if ["expired", "broken"].contains(how) {
                lost.value(&[("how", how)], span.read().1);
            }
        }
        let help = "Operations that wait to be written now.";
        let mut queued = page.metric("leasehold_queued_operations", Type::Gauge, help);
        queued.value(&[], stats.queued);
        let help = "Records in the cache now.";
        let mut cached = page.metric("leasehold_cached_records", Type::Gauge, help);
        cached.value(&[], stats.cached);
    }

    fn store(&self, page: &mut Page) {
        let stats = self.engine.stats();
        let measures = self.engine.measures();
        let store = &*self.config.store;
        let help = "How long calls of the store took.";
        let mut calls = page.metric("leasehold_store_call_duration_seconds", Type::Spans, help);
        let by_call = [
            ("load", &measures.load),
            ("swap", &measures.swap),
            ("find", &measures.find),
        ];
        for (call, spans) in by_call {
            calls.histogram(&[("store", store), ("call", call)], spans);
        }
        let help = "How many records were written together.";
        let mut batches = page.metric("leasehold_batch_size", Type::Sizes, help);
        batches.histogram(&[], &measures.batch);
        let help = "Records written.";
        let mut writes = page.metric("leasehold_writes_total", Type::Counter, help);
        writes.value(&[], stats.writes);
        let help = "Writes that lost against another service's.";
        let mut conflicts = page.metric("leasehold_conflicts_total", Type::Counter, help);
        conflicts.value(&[], stats.conflicts);
        let help = "Calls of the store that failed, and how.";
        let mut errors = page.metric("leasehold_store_errors_total", Type::Counter, help);
        for (kind, count) in FAILURES.iter().zip(&measures.failures) {
            errors.value(&[("kind", kind)], count.get());
        }
        let help = "Whether the store answers, as its last calls showed.";
        let mut up = page.metric("leasehold_store_up", Type::Gauge, help);
        up.value(&[], u8::from(!measures.store.is_failing()));
    }

    fn audit(&self, page: &mut Page) {
        let audit = self.config.audit.as_ref();
        let help = "Times that the audit log could not be written.";
        let mut failures = page.metric("leasehold_audit_failures_total", Type::Counter, help);
        failures.value(&[], audit.map_or(0, Audit::failures));
        let help =
            "Refusals of unknown callers that the audit log omits because there were too many.";
        let mut omitted = page.metric("leasehold_audit_omitted_total", Type::Counter, help);
        omitted.value(&[], audit.map_or(0, Audit::omitted));
    }

    fn clock(&self, page: &mut Page) {
        let known = self.engine.store_time();
        let [earliest, latest] = [known.earliest, known.latest].map(|time| time.as_micros());
        let bound = (latest - earliest) as f64 / 2e6;
        // Only to show how far it is off: nothing is decided by this clock.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_micros() as f64 / 1e6;
        let offset = earliest as f64 / 1e6 + bound - wall;
        let help = "The store's time minus this machine's wall clock, on which nothing depends.";
        let mut offsets = page.metric("leasehold_clock_offset_seconds", Type::Gauge, help);
        offsets.value(&[], offset);
        let help = "How far the store's time may be from what it is taken to be, either way.";
        let mut bounds = page.metric("leasehold_clock_error_seconds", Type::Gauge, help);
        bounds.value(&[], bound);
        let help = "How often the store's clock was seen to step.";
        let mut steps = page.metric("leasehold_clock_steps_total", Type::Counter, help);
        steps.value(&[], self.engine.measures().steps.get());
    }

    fn clients(&self, page: &mut Page) {
        let (metrics, events) = (&self.metrics, self.events.counts());
        let accepted = metrics.connected.get();
        let open = accepted.saturating_sub(metrics.disconnected.get());
        let help = "Connections open now.";
        let mut now = page.metric("leasehold_connections", Type::Gauge, help);
        now.value(&[], open);
        let help = "Connections accepted.";
        let mut all = page.metric("leasehold_connections_total", Type::Counter, help);
        all.value(&[], accepted);
        let help = "Connections closed because their client did not read.";
        let mut stalled = page.metric("leasehold_stalled_connections_total", Type::Counter, help);
        stalled.value(&[], metrics.stalled.get());
        let connections = &self.connections;
        let help = "Idle connections closed because there were too many.";
        let mut displaced =
            page.metric("leasehold_displaced_connections_total", Type::Counter, help);
        displaced.value(&[], connections.displaced.get());
        let help = "Connections refused because there were too many, and none was idle.";
        let mut refused = page.metric("leasehold_refused_connections_total", Type::Counter, help);
        refused.value(&[], connections.refused.get());
        let help = "Who subscribes to events now.";
        let mut subscribers = page.metric("leasehold_event_subscribers", Type::Gauge, help);
        subscribers.value(&[], events.subscribers);
        let help = "Events told to subscribers, each counted once.";
        let mut told = page.metric("leasehold_events_total", Type::Counter, help);
        told.value(&[], events.told);
        let help = "How often a subscriber was told that it had missed events.";
        let mut missed = page.metric("leasehold_events_missed_total", Type::Counter, help);
        missed.value(&[], events.missed);
        let help = "What runs here.";
        let mut info = page.metric("leasehold_info", Type::Gauge, help);
        let version = env!("CARGO_PKG_VERSION");
        info.value(&[("version", version), ("store", &self.config.store)], 1);
    }
}
