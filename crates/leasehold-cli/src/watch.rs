//! `leasehold watch`.

use std::time::Duration;

use clap::Args;
use leasehold::engine::{Engine, Happened, Missed};
use leasehold::wire::{EventKind, Told};
use leasehold::{Error, Remote};

use crate::arguments::Common;
use crate::exit::Failure;
use crate::signals::Signals;
use crate::{output, store};

/// How long to leave a service alone that has gone.
const PAUSE: Duration = Duration::from_secs(1);

/// Tell what happens to leases, as it happens.
#[derive(Args, Debug)]
#[command(after_help = "\
Through a service (http://) it goes on where it was when the connection is lost. On a database it tells what others do as \
soon as that hints at it (PostgreSQL, Redis, MongoDB, etcd), and looks by itself every so often on others. Bodies are never \
told. Ctrl-C ends it.

Examples:
  leasehold watch
  leasehold watch backups/
  leasehold --store http://db1:12345 watch --json | jq .owner")]
pub(crate) struct Watch {
    /// Only names that start like this.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// How often to look, on a database that gives no hints.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = leasehold::duration::parse)]
    #[arg(allow_hyphen_values = true)]
    every: Duration,
}

impl Watch {
    pub(crate) async fn execute(self, common: &Common) -> Result<u8, Failure> {
        let mut signals = Signals::catch()?;
        let place = store::place(common)?;
        let watching = async {
            if let Some(service) = place.service()? {
                self.follow(&service, common.json).await
            } else {
                let engine = Engine::start(leasehold::store::open(place.url()).await?).await?;
                self.hear(&engine, common.json).await
            }
        };
        tokio::select! {
            ended = watching => ended?,
            _ = signals.end() => {}
        }
        Ok(0)
    }

    /// Tells what a service tells, for as long as somebody reads it.
    async fn follow(&self, service: &Remote, json: bool) -> Result<(), Failure> {
        let mut events = service.events(&self.prefix);
        loop {
            match events.next().await {
                Ok(told) => {
                    if !print(&told, json)? {
                        return Ok(());
                    }
                }
                Err(Error::Unavailable(why)) if events.is_resuming() => {
                    output::note(&format!("{why}: trying again"));
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells what an engine of our own hears.
    async fn hear(&self, engine: &Engine, json: bool) -> Result<(), Failure> {
        let mut events = engine.subscribe();
        engine.look_over(&self.prefix, true).await?;
        let mut look = tokio::time::interval(self.every.max(Duration::from_millis(1)));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                happened = events.next() => match happened {
                    None => return Ok(()),
                    Some(happened) => {
                        if let Some(told) = self.told(happened)
                            && !print(&told, json)?
                        {
                            return Ok(());
                        }
                    }
                },
                _ = look.tick(), if !engine.is_hinted() => {
                    if let Err(error) = engine.look_over(&self.prefix, false).await {
                        output::note(&format!("{error}: trying again"));
                    }
                }
            }
        }
    }

    fn told(&self, happened: Result<Happened, Missed>) -> Option<Told> {
        match happened {
            Err(Missed) => Some(Told::missed()),
            Ok(Happened { name, event, at }) => name
                .as_str()
                .starts_with(&self.prefix)
                .then(|| Told::new(&name, &event, at)),
        }
    }
}

/// Prints an event; whether somebody still reads.
fn print(told: &Told, json: bool) -> Result<bool, Failure> {
    if json {
        return output::line(
            &serde_json::to_string(told)
                .map_err(|error| Failure::system("the event cannot be written as JSON", error))?,
        );
    }
    if told.event == EventKind::Missed {
        output::note("some events were missed: look at `leasehold list`");
        return Ok(true);
    }
    output::line(&in_words(told))
}

/// One line: when, what, of which name, by whom, and what there is to know about it.
fn in_words(told: &Told) -> String {
    let time = told.time.map(output::second).unwrap_or_default();
    let mut line = format!("{time}  {:<9}  ", told.event.as_str());
    if told.kind.as_deref() == Some("gate") {
        line.push_str("gate ");
    }
    line.push_str(told.name.as_deref().unwrap_or_default());
    if let (Some(owner), Some(fence)) = (&told.owner, told.fence) {
        line.push_str(&format!("  {owner}  {fence}"));
    }
    if let Some(ttl) = told.ttl {
        line.push_str(&format!(
            "  for {}",
            output::span(Duration::from_millis(ttl))
        ));
    }
    if let Some(state) = &told.state {
        line.push_str(&format!("  {state}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use leasehold::core::{EndReason, Event, Fence, Name, Time};

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let at = Time::from_micros(1_700_000_000_123_456);
        let ended = Event::Ended {
            fence: Fence::new(7).unwrap(),
            owner: "web-1".into(),
            since: None,
            how: Some(EndReason::Expired),
        };
        let told = |name: &Name, event: &Event| in_words(&Told::new(name, event, at));
        assert_eq!(
            told(&Name::lock("job").unwrap(), &ended),
            "2023-11-14T22:13:20Z  expired    job  web-1  7"
        );
        let state = Some("DONE".into());
        assert_eq!(
            told(&Name::gate("a b").unwrap(), &Event::Updated { state }),
            "2023-11-14T22:13:20Z  updated    gate a b  DONE"
        );
    }
}
