//! Looking: at one lease, and at many.

use std::fmt;
use std::time::Duration;

use leasehold::core::{Kind, Name, View};
use leasehold::engine::SEARCH_PAGE;
use leasehold::wire::{LockView, MAX_PAGE, Problem};
use leasehold::{Error, ListRequest, Listing, Result};
use tokio::time::Instant;

use crate::access::Right;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::budget::PAGE_BYTES;
use crate::page::{Overflow, Page};
use crate::query::Query;
use crate::refused::Refused;
use crate::service::{Call, Service};

/// Names in a page when the caller does not say.
const DEFAULT_PAGE: usize = 100;
/// How long a page may take before it ends as it is: clients wait for it.
const LIST_TIME: Duration = Duration::from_secs(2);

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&self.view(name, &view))),
            None => Err(Problem::unknown(name).into()),
        }
    }

    /// A page of names. It ends early when it is large, or takes long: its cursor says where to go on.
    pub(crate) async fn list(&self, call: Call<'_>, kind: Kind) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["prefix", "state", "held", "cursor", "limit", "bodies"])?;
        let is_cut = cuts_bodies(query)?;
        let limit = query.limit(MAX_PAGE)?.unwrap_or(DEFAULT_PAGE);
        let mut request = ListRequest {
            gates: kind == Kind::Gate,
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            state: query.get("state").map(Into::into),
            held: query.flag("held")?,
            cursor: query.get("cursor").map(Into::into),
            limit: 0,
        };
        let reserving = self.answers.reserve(call.client_address, PAGE_BYTES);
        let mut reserved = reserving.await?;
        let (mut page, started) = (Page::new(kind), Instant::now());
        // Cursors lead on from whole pages of the store only. What does not fit is asked for again, in a smaller page.
        let mut most = SEARCH_PAGE;
        loop {
            request.limit = most.min(limit - page.count());
            let Listing { leases, cursor } = self.readable(&call.caller, request.clone()).await?;
            let views = leases.iter().map(|(name, view)| {
                let view = self.view(name, view);
                if is_cut { view.cut() } else { view }
            });
            match page.add(views) {
                Ok(()) => request.cursor = cursor,
                Err(_) if page.count() > 0 => break,
                Err(Overflow(fitting)) => {
                    most = fitting.min(most - 1).max(1);
                    continue;
                }
            }
            let is_complete = request.cursor.is_none() || page.count() == limit;
            if is_complete || most < SEARCH_PAGE || page.is_full() || started.elapsed() > LIST_TIME
            {
                break;
            }
            // A store in memory answers at once, and others shall have their turn.
            tokio::task::yield_now().await;
        }
        let json = page.finish(request.cursor.as_deref());
        reserved.shrink_to(json.len());
        Ok(answer::reserved(reserved, json))
    }

    /// What may be seen of a name, and how many wait for it here.
    fn view(&self, name: &Name, view: &View) -> LockView {
        LockView {
            waiters: self.engine.waiters(name) as u64,
            ..LockView::new(name, view)
        }
    }

    /// A page of what the caller may read: one prefix after the other, so that not even a cursor tells of other names.
    async fn readable(
        &self,
        caller: &Caller,
        mut request: ListRequest,
    ) -> Result<Listing, Refused> {
        if caller.is_anybody() {
            return Ok(self.engine.list(request).await?);
        }
        let parts = caller.narrow(Right::Read, &request.prefix)?;
        let mut after = Place::default();
        if let Some(cursor) = &request.cursor {
            after = Place::parse(cursor)?;
        }
        let mut rest = parts.into_iter().skip_while(|part| *part < after.prefix);
        let Some(prefix) = rest.next() else {
            return Ok(Listing::default());
        };
        let go_on = prefix == after.prefix && !after.cursor.is_empty();
        request.cursor = go_on.then_some(after.cursor);
        request.prefix = prefix.clone();
        let mut listing = self.engine.list(request).await?;
        let next = match listing.cursor {
            Some(cursor) => Some(Place { prefix, cursor }),
            None => rest.next().map(|prefix| Place {
                prefix,
                cursor: String::new(),
            }),
        };
        listing.cursor = next.map(|place| place.to_string());
        Ok(listing)
    }
}

/// Whether a list has only the beginnings of bodies.
fn cuts_bodies(query: &Query<'_>) -> Result<bool> {
    match query.get("bodies") {
        None | Some("cut") => Ok(true),
        Some("full") => Ok(false),
        Some(_) => Err(Error::invalid("`bodies` must be `cut` or `full`")),
    }
}

/// How far a list has come: in which prefix, and where the store goes on in that. Written with the length of the prefix
/// first.
#[derive(Default)]
struct Place {
    prefix: String,
    cursor: String,
}

impl Place {
    fn parse(text: &str) -> Result<Self> {
        let parts = text.split_once(':').and_then(|(bytes, rest)| {
            let (prefix, cursor) = rest.split_at_checked(bytes.parse().ok()?)?;
            Some(Self {
                prefix: prefix.to_owned(),
                cursor: cursor.to_owned(),
            })
        });
        parts.ok_or_else(|| Error::invalid("that is no cursor of yours: start without one"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, cursor } = self;
        write!(f, "{}:{prefix}{cursor}", prefix.len())
    }
}
