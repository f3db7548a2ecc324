//! Acquires the leases of a run, holds them while its command runs, and releases them.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Lease};
use serde_json::{Value, json};

use super::Run;
use super::job::{Job, Outcome};
use super::supervise::{self, supervise};
use crate::acquire::report_waiting;
use crate::exit::Failure;
use crate::output;
use crate::signals::Signals;
use crate::store::Target;

impl Run {
    /// Acquires the leases, and reports the holder that it waits for. The lease of the first name comes first.
    pub(super) async fn leases(&self, client: &Client) -> leasehold::Result<Vec<Lease>> {
        if self.also.is_empty() {
            return Ok(vec![self.lease(client).await?]);
        }
        let options = &self.options;
        let mut several = client.lease_all(self.names()).ttl(options.ttl);
        if let Some(owner) = &options.owner {
            several = several.owner(owner.as_str());
        }
        let acquired = match several.clone().acquire().await {
            Err(Error::Held(held)) if options.wait_limit() != Some(Duration::ZERO) => {
                report_waiting(&self.names().join(", "), &held);
                several
                    .wait(options.wait_limit().unwrap_or(Duration::MAX))
                    .acquire()
                    .await?
            }
            acquired => acquired?,
        };
        let mut leases = acquired.into_leases();
        leases.sort_by_key(|lease| *lease.name() != options.name);
        Ok(leases)
    }

    /// Acquires the only lease.
    async fn lease(&self, client: &Client) -> leasehold::Result<Lease> {
        let options = &self.options;
        let mut lease = client.lease(options.name.as_str()).ttl(options.ttl);
        if let Some(owner) = &options.owner {
            lease = lease.owner(owner.as_str());
        }
        if options.shared {
            lease = lease.shared(options.limit);
        }
        let held = match lease.clone().acquire().await {
            Err(Error::Held(held)) if options.wait_limit() != Some(Duration::ZERO) => held,
            acquired => return acquired,
        };
        report_waiting(options.name.as_str(), &held);
        match options.wait_limit() {
            Some(wait) => lease.wait(wait).acquire().await,
            None => lease.wait_forever().acquire().await,
        }
    }

    /// Runs the command, and releases the leases.
    pub(super) async fn hold(
        &self,
        leases: Vec<Lease>,
        target: &Target,
        signals: &mut Signals,
    ) -> Result<Outcome, Failure> {
        let mut environment = environment(&leases[0], target);
        if leases.len() > 1 {
            environment.push(("LEASEHOLD_FENCES", Some(fences(&leases))));
        }
        let mut job = Job::inheriting(&self.command, environment);
        job.loss_signal = self.on_loss;
        job.max_hold = self.max_hold;
        let started = Instant::now();
        let outcome = supervise(&leases, job, signals).await;
        let outcome = outcome.map_err(|error| Failure::system("cannot start the command", error));
        if matches!(outcome, Ok(Outcome::Survivors { .. })) {
            // Dropping the leases would release them while a process still runs.
            leases.into_iter().for_each(std::mem::forget);
            return outcome;
        }
        let lost = matches!(outcome, Ok(Outcome::Lost(_)));
        if !lost
            && !self
                .has_been_held_long_enough(started, &leases, signals)
                .await
        {
            output::note(&format!(
                "{} stays held until it expires",
                self.description()
            ));
            leases.into_iter().for_each(std::mem::forget);
            return outcome;
        }
        // The command received the body of the first name only, so the bodies of `--also` names are kept.
        for (index, lease) in leases.into_iter().enumerate() {
            let name = lease.name().clone();
            let clears_body = index == 0 && self.clears_body(&outcome, &lease);
            let released = if clears_body {
                lease.complete().body("").await
            } else {
                lease.release().await.map(drop)
            };
            match released {
                Err(error) if !lost => {
                    output::note(&format!(
                        "cannot release {name}: {error}; it expires after its ttl"
                    ));
                }
                _ => {}
            }
        }
        outcome
    }

    /// Waits until the leases were held for `--at-least`. Returns false if a signal ends the wait.
    async fn has_been_held_long_enough(
        &self,
        started: Instant,
        leases: &[Lease],
        signals: &mut Signals,
    ) -> bool {
        let left = self
            .at_least
            .unwrap_or_default()
            .saturating_sub(started.elapsed());
        if left.is_zero() {
            return true;
        }
        tokio::select! {
            () = tokio::time::sleep(left) => true,
            _ = supervise::any(leases.iter().map(Lease::lost)) => true,
            _ = signals.end() => false,
        }
    }

    /// Whether to clear the body, because there is nothing to resume. The body of a shared lease belongs to the other
    /// holders too, and that of a work item is its content.
    fn clears_body(&self, outcome: &Result<Outcome, Failure>, lease: &Lease) -> bool {
        matches!(outcome, Ok(Outcome::Ended(0)))
            && !self.keep_body
            && !self.options.shared
            && lease.state().is_none()
    }
}

/// Returns names and fences as a JSON object.
fn fences(leases: &[Lease]) -> String {
    let fences = leases
        .iter()
        .map(|lease| (lease.name().to_string(), json!(lease.fence())));
    Value::Object(fences.collect()).to_string()
}

/// Returns the variables that describe a lease to its command.
pub(crate) fn environment(lease: &Lease, target: &Target) -> Vec<(&'static str, Option<String>)> {
    let variables = [
        ("LEASEHOLD_NAME", Some(lease.name().to_string())),
        ("LEASEHOLD_FENCE", Some(lease.fence().to_string())),
        ("LEASEHOLD_BODY", Some(lease.body().to_string())),
        (
            "LEASEHOLD_STATE",
            lease.state().map(|state| state.to_string()),
        ),
        ("LEASEHOLD_EXPIRES", Some(output::time(lease.expires_at()))),
        ("LEASEHOLD_FENCES", None),
    ];
    // A variable cannot contain NUL. A body with one can be read with `show --json`.
    let is_representable = |value: &String| !value.contains('\0');
    let variables = target.environment().into_iter().chain(variables);
    variables
        .map(|(name, value)| (name, value.filter(is_representable)))
        .collect()
}
