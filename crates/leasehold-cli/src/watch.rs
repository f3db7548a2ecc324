//! `leasehold watch`.

use std::time::Duration;

use clap::Args;
use leasehold::engine::{Engine, EngineEvent, EventsMissed};
use leasehold::wire::{EventKind, EventMessage};
use leasehold::{Error, Remote};

use crate::arguments::{self, Common};
use crate::exit::Failure;
use crate::signals::Signals;
use crate::{output, store};

/// How long to wait before reconnecting to a service.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Print events of leases as they happen, until interrupted.
#[derive(Args, Debug)]
#[command(after_help = "\
Through a service (http://), it resumes where it was after a lost connection. On a database with change notifications \
(PostgreSQL, Redis, MongoDB, etcd), events of other processes appear at once; on other databases it polls. Bodies are \
never shown.

Examples:
  leasehold watch
  leasehold watch backups/
  leasehold --store http://db1:12345 watch --json | jq .owner")]
pub(crate) struct Watch {
    /// Only names with this prefix.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Polling interval on a database without change notifications.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = arguments::duration)]
    #[arg(allow_hyphen_values = true)]
    every: Duration,
}

impl Watch {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let mut signals = Signals::catch()?;
        let target = store::target(common)?;
        let watching = async {
            if let Some(service) = target.service()? {
                self.watch_service(&service, common.json).await
            } else {
                let engine = Engine::start(leasehold::store::open(target.url()).await?).await?;
                self.watch_engine(&engine, common.json).await
            }
        };
        tokio::select! {
            ended = watching => ended?,
            _ = signals.end() => {}
        }
        Ok(0)
    }

    /// Prints the events of a service until the reader closes the pipe.
    async fn watch_service(&self, service: &Remote, json: bool) -> Result<(), Failure> {
        let mut events = service.events(&self.prefix);
        loop {
            match events.next().await {
                Ok(event) => {
                    if !print(&event, json)? {
                        return Ok(());
                    }
                }
                Err(Error::Unavailable(why)) if events.is_resuming() => {
                    output::note(&format!("{why}; retrying"));
                    tokio::time::sleep(RECONNECT_DELAY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Prints the events that an engine of this process observes on a database.
    async fn watch_engine(&self, engine: &Engine, json: bool) -> Result<(), Failure> {
        let mut events = engine.subscribe();
        engine.scan_for_changes(&self.prefix, true).await?;
        let mut polls = tokio::time::interval(self.every.max(Duration::from_millis(1)));
        polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                happened = events.next() => match happened {
                    None => return Ok(()),
                    Some(happened) => {
                        if let Some(event) = self.to_wire(happened)
                            && !print(&event, json)?
                        {
                            return Ok(());
                        }
                    }
                },
                _ = polls.tick(), if !engine.has_change_hints() => {
                    if let Err(error) = engine.scan_for_changes(&self.prefix, false).await {
                        output::note(&format!("{error}; retrying"));
                    }
                }
            }
        }
    }

    /// Converts an event for printing; `None` if its name does not have the prefix.
    fn to_wire(&self, happened: Result<EngineEvent, EventsMissed>) -> Option<EventMessage> {
        match happened {
            Err(EventsMissed) => Some(EventMessage::missed()),
            Ok(EngineEvent { name, event, at }) => name
                .as_str()
                .starts_with(&self.prefix)
                .then(|| EventMessage::new(&name, &event, at)),
        }
    }
}

/// Prints an event. Returns whether the reader still has the pipe open.
fn print(event: &EventMessage, json: bool) -> Result<bool, Failure> {
    if json {
        return output::line(
            &serde_json::to_string(event)
                .map_err(|error| Failure::system("cannot encode the event as JSON", error))?,
        );
    }
    if event.event == EventKind::EventsMissed {
        output::note("some events were missed: run `leasehold list` for the present state");
        return Ok(true);
    }
    output::line(&for_people(event))
}

/// Formats an event as one line: time, event, name, owner and fence, ttl, state.
fn for_people(event: &EventMessage) -> String {
    let time = event.time.map(output::time_to_second).unwrap_or_default();
    let mut line = format!("{time}  {:<9}  ", event.event.as_str());
    if event.kind.as_deref() == Some("gate") {
        line.push_str("gate ");
    }
    line.push_str(event.name.as_deref().unwrap_or_default());
    if let (Some(owner), Some(fence)) = (&event.owner, event.fence) {
        line.push_str(&format!("  {owner}  {fence}"));
    }
    if let Some(ttl) = event.ttl {
        line.push_str(&format!(
            "  for {}",
            output::span(Duration::from_millis(ttl))
        ));
    }
    if let Some(state) = &event.state {
        line.push_str(&format!("  {state}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use leasehold::core::{EndReason, Event, Fence, Name, Time};

    use super::*;

    #[test]
    fn an_event_is_printed_as_one_line() {
        let at = Time::from_micros(1_700_000_000_123_456);
        let ended = Event::Ended {
            fence: Fence::new(7).unwrap(),
            owner: "web-1".into(),
            since: None,
            how: Some(EndReason::Expired),
        };
        let line = |name: &Name, event: &Event| for_people(&EventMessage::new(name, event, at));
        assert_eq!(
            line(&Name::lock("job").unwrap(), &ended),
            "2023-11-14T22:13:20Z  expired    job  web-1  7"
        );
        let state = Some("DONE".into());
        assert_eq!(
            line(&Name::gate("a b").unwrap(), &Event::Updated { state }),
            "2023-11-14T22:13:20Z  updated    gate a b  DONE"
        );
    }
}
