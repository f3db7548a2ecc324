//! All metrics. `docs/reference/metrics.md` has the same list, and a test compares them.

use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::engine::{ENDINGS, FAILURES};
use leasehold::wire::ProblemType;

use super::RequestKind;
use super::text::{Page, Type};
use crate::audit::Audit;
use crate::service::Service;

impl Service {
    /// Returns all metrics.
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
        let help = "Requests answered, by operation and outcome.";
        let mut answered = page.metric("leasehold_requests_total", Type::Counter, help);
        for (kind, outcomes) in RequestKind::ALL.iter().zip(&metrics.answered) {
            let problems = ProblemType::ALL.iter().map(|problem| problem.as_str());
            for (outcome, count) in ["ok"].into_iter().chain(problems).zip(outcomes) {
                // A success rate can be computed from the start; the many other series begin when they are needed.
                if outcome == "ok" || count.get() > 0 {
                    let labels = [("operation", kind.as_str()), ("outcome", outcome)];
                    answered.value(&labels, count.get());
                }
            }
        }
        let help = "How long requests took, including waits.";
        let mut took = page.metric("leasehold_request_duration_seconds", Type::Durations, help);
        for (kind, durations) in RequestKind::ALL.iter().zip(&metrics.durations) {
            let labels = [("store", store), ("operation", kind.as_str())];
            took.histogram(&labels, durations);
        }
        let help = "How long requests with wait= took, whatever their outcome.";
        let mut waits = page.metric("leasehold_wait_duration_seconds", Type::Durations, help);
        waits.histogram(&[], &metrics.waits);
    }

    fn leases(&self, page: &mut Page) {
        let stats = self.engine.stats();
        let metrics = self.engine.metrics();
        let help = "Requests that wait for a lease now.";
        let mut waiters = page.metric("leasehold_waiters", Type::Gauge, help);
        waiters.value(&[], stats.waiters);
        let help = "Leases held now, among the names in the cache of this service.";
        let mut held = page.metric("leasehold_held_leases", Type::Gauge, help);
        held.value(&[], self.engine.held());
        let help = "How long leases were held, for leases whose end this service wrote, by how they ended.";
        let mut held = page.metric("leasehold_hold_duration_seconds", Type::Durations, help);
        for (how, durations) in ENDINGS.iter().zip(&metrics.held) {
            held.histogram(&[("how", how)], durations);
        }
        let help = "Leases that ended without a release by their holder: expired or broken.";
        let mut lost = page.metric("leasehold_lost_leases_total", Type::Counter, help);
        for (how, durations) in ENDINGS.iter().zip(&metrics.held) {
            if ["expired", "broken"].contains(how) {
                lost.value(&[("how", how)], durations.read().1);
            }
        }
        let help = "Operations that are queued to be written now.";
        let mut queued = page.metric("leasehold_queued_operations", Type::Gauge, help);
        queued.value(&[], stats.queued);
        let help = "Records in the cache now.";
        let mut cached = page.metric("leasehold_cached_records", Type::Gauge, help);
        cached.value(&[], stats.cached);
    }

    fn store(&self, page: &mut Page) {
        let stats = self.engine.stats();
        let metrics = self.engine.metrics();
        let store = &*self.config.store;
        let help = "How long store calls took.";
        let mut calls = page.metric(
            "leasehold_store_call_duration_seconds",
            Type::Durations,
            help,
        );
        let by_call = [
            ("load", &metrics.load),
            ("swap", &metrics.swap),
            ("find", &metrics.find),
        ];
        for (call, durations) in by_call {
            calls.histogram(&[("store", store), ("call", call)], durations);
        }
        let help = "How many records were written together.";
        let mut batches = page.metric("leasehold_batch_size", Type::Sizes, help);
        batches.histogram(&[], &metrics.batch);
        let help = "Records written.";
        let mut writes = page.metric("leasehold_writes_total", Type::Counter, help);
        writes.value(&[], stats.writes);
        let help = "Writes that conflicted with another service's write, and were retried.";
        let mut conflicts = page.metric("leasehold_conflicts_total", Type::Counter, help);
        conflicts.value(&[], stats.conflicts);
        let help = "Store calls that failed, by kind of error.";
        let mut errors = page.metric("leasehold_store_errors_total", Type::Counter, help);
        for (kind, count) in FAILURES.iter().zip(&metrics.failures) {
            errors.value(&[("kind", kind)], count.get());
        }
        let help = "Whether the store answers, according to its last calls.";
        let mut up = page.metric("leasehold_store_up", Type::Gauge, help);
        up.value(&[], u8::from(!metrics.store.is_failing()));
    }

    fn audit(&self, page: &mut Page) {
        let audit = self.config.audit.as_ref();
        let help = "How often the audit log could not be written.";
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
        // Only for display: no decision depends on the wall clock.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_micros() as f64 / 1e6;
        let offset = earliest as f64 / 1e6 + bound - wall;
        let help =
            "The store's time minus this machine's wall clock. No lease depends on the latter.";
        let mut offsets = page.metric("leasehold_clock_offset_seconds", Type::Gauge, help);
        offsets.value(&[], offset);
        let help = "The error bound of the estimated store time, either way.";
        let mut bounds = page.metric("leasehold_clock_error_seconds", Type::Gauge, help);
        bounds.value(&[], bound);
        let help = "How often a step of the store's clock was noticed.";
        let mut steps = page.metric("leasehold_clock_steps_total", Type::Counter, help);
        steps.value(&[], self.engine.metrics().steps.get());
    }

    fn clients(&self, page: &mut Page) {
        let (metrics, events) = (&self.metrics, self.events.counts());
        let accepted = metrics.connected.get();
        let open = accepted.saturating_sub(metrics.disconnected.get());
        let help = "Connections open now.";
        let mut connections = page.metric("leasehold_connections", Type::Gauge, help);
        connections.value(&[], open);
        let help = "Connections accepted.";
        let mut total = page.metric("leasehold_connections_total", Type::Counter, help);
        total.value(&[], accepted);
        let help = "Connections closed because their client did not read.";
        let mut stalled = page.metric("leasehold_stalled_connections_total", Type::Counter, help);
        stalled.value(&[], metrics.stalled.get());
        let help = "Idle connections closed because there were too many.";
        let mut displaced =
            page.metric("leasehold_displaced_connections_total", Type::Counter, help);
        displaced.value(&[], self.connections.displaced.get());
        let help = "Connections refused because there were too many, and none was idle.";
        let mut refused = page.metric("leasehold_refused_connections_total", Type::Counter, help);
        refused.value(&[], self.connections.refused.get());
        let help = "Bytes of large answers that are being made or not read yet.";
        let mut answers = page.metric("leasehold_answer_bytes", Type::Gauge, help);
        answers.value(&[], self.answers.used());
        let help = "Subscribers to events now.";
        let mut subscribers = page.metric("leasehold_event_subscribers", Type::Gauge, help);
        subscribers.value(&[], events.subscribers);
        let help = "Events sent to subscribers, each counted once.";
        let mut published = page.metric("leasehold_events_total", Type::Counter, help);
        published.value(&[], events.published);
        let help = "How often a subscriber was sent missed.";
        let mut missed = page.metric("leasehold_events_missed_total", Type::Counter, help);
        missed.value(&[], events.missed);
        let help = "The version of the service and the scheme of its store's URL. Always 1.";
        let mut info = page.metric("leasehold_info", Type::Gauge, help);
        let version = env!("CARGO_PKG_VERSION");
        info.value(&[("version", version), ("store", &self.config.store)], 1);
    }
}
