//! Looking: at one lease, and at many.

use std::fmt;

use leasehold::core::{Kind, Name, View};
use leasehold::wire::{Gates, LockView, Locks, MAX_PAGE, Problem};
use leasehold::{Error, ListRequest, Listing, Result};

use crate::access::Right;
use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::service::{Call, Service};

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Refused> {
        call.query.only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&self.view(name, &view))),
            None => Err(Problem::unknown(name).into()),
        }
    }

    pub(crate) async fn list(&self, call: Call<'_>, kind: Kind) -> Result<Answer, Refused> {
        let query = &call.query;
        query.only(&["prefix", "state", "held", "cursor", "limit"])?;
        let request = ListRequest {
            gates: kind == Kind::Gate,
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            state: query.get("state").map(Into::into),
            held: query.flag("held")?,
            cursor: query.get("cursor").map(Into::into),
            limit: query.limit(MAX_PAGE)?.unwrap_or_default(),
        };
        let Listing { leases, cursor } = self.readable(&call.caller, request).await?;
        let views = leases.iter().map(|(name, view)| self.view(name, view));
        let views = views.collect();
        Ok(match kind {
            Kind::Lock => answer::ok(&Locks {
                locks: views,
                cursor,
            }),
            Kind::Gate => answer::ok(&Gates {
                gates: views,
                cursor,
            }),
        })
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
