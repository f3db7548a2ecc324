//! Handlers that show one lease, and list many.

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
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// The page size of a list without `limit`.
const DEFAULT_PAGE: usize = 100;
/// How long a page may take before it is returned incomplete.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

impl Service {
    pub(crate) async fn show(&self, call: Call<'_>, name: &Name) -> Result<Answer, Rejection> {
        call.query.allow_only(&["name"])?;
        match self.engine.show(name).await? {
            Some(view) => Ok(answer::ok(&self.view(name, &view))),
            None => Err(Problem::unknown(name).into()),
        }
    }

    /// Lists a page of names. A page that is large or takes long ends early, with a cursor for the next page.
    pub(crate) async fn list(&self, call: Call<'_>, kind: Kind) -> Result<Answer, Rejection> {
        let query = &call.query;
        query.allow_only(&["prefix", "state", "held", "cursor", "limit", "bodies"])?;
        let is_cut = are_bodies_cut(query)?;
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
        let mut permit = reserving.await?;
        let (mut page, started) = (Page::new(kind), Instant::now());
        // A cursor continues after a whole page of the store. If that does not fit, a smaller page is requested.
        let mut batch_limit = SEARCH_PAGE;
        loop {
            request.limit = batch_limit.min(limit - page.count());
            let Listing { leases, cursor } =
                self.list_readable(&call.caller, request.clone()).await?;
            let views = leases.iter().map(|(name, view)| {
                let view = self.view(name, view);
                if is_cut { view.cut() } else { view }
            });
            match page.add(views) {
                Ok(()) => request.cursor = cursor,
                Err(_) if page.count() > 0 => break,
                Err(Overflow(fitting)) => {
                    batch_limit = fitting.min(batch_limit - 1).max(1);
                    continue;
                }
            }
            let is_complete = request.cursor.is_none() || page.count() == limit;
            if is_complete
                || batch_limit < SEARCH_PAGE
                || page.is_full()
                || started.elapsed() > LIST_TIMEOUT
            {
                break;
            }
            // A memory store never waits, so yield to other requests.
            tokio::task::yield_now().await;
        }
        let json = page.finish(request.cursor.as_deref());
        permit.shrink_to(json.len());
        Ok(answer::reserved_json(permit, json))
    }

    /// Returns the view of a name, with the number of its waiters in this process.
    fn view(&self, name: &Name, view: &View) -> LockView {
        LockView {
            waiters: self.engine.waiters(name) as u64,
            ..LockView::new(name, view)
        }
    }

    /// Lists a page of the names that the caller may read, prefix by prefix, so that not even a cursor reveals other names.
    async fn list_readable(
        &self,
        caller: &Caller,
        mut request: ListRequest,
    ) -> Result<Listing, Rejection> {
        if caller.is_anonymous() {
            return Ok(self.engine.list(request).await?);
        }
        let parts = caller.narrow(Right::Read, &request.prefix)?;
        let mut after = ListCursor::default();
        if let Some(cursor) = &request.cursor {
            after = ListCursor::parse(cursor)?;
        }
        let mut rest = parts.into_iter().skip_while(|part| *part < after.prefix);
        let Some(prefix) = rest.next() else {
            return Ok(Listing::default());
        };
        let is_continued = prefix == after.prefix && !after.cursor.is_empty();
        request.cursor = is_continued.then_some(after.cursor);
        request.prefix = prefix.clone();
        let mut listing = self.engine.list(request).await?;
        let next = match listing.cursor {
            Some(cursor) => Some(ListCursor { prefix, cursor }),
            None => rest.next().map(|prefix| ListCursor {
                prefix,
                cursor: String::new(),
            }),
        };
        listing.cursor = next.map(|cursor| cursor.to_string());
        Ok(listing)
    }
}

/// Returns whether a list has only the beginnings of bodies.
fn are_bodies_cut(query: &Query<'_>) -> Result<bool> {
    match query.get("bodies") {
        None | Some("cut") => Ok(true),
        Some("full") => Ok(false),
        Some(_) => Err(Error::invalid(
            "the parameter `bodies` is invalid: give `cut` or `full`",
        )),
    }
}

/// The position of a list: a prefix, and the store's cursor within it. Its text form starts with the length of the prefix.
#[derive(Default)]
struct ListCursor {
    prefix: String,
    cursor: String,
}

impl ListCursor {
    fn parse(text: &str) -> Result<Self> {
        let parts = text.split_once(':').and_then(|(bytes, rest)| {
            let (prefix, cursor) = rest.split_at_checked(bytes.parse().ok()?)?;
            Some(Self {
                prefix: prefix.to_owned(),
                cursor: cursor.to_owned(),
            })
        });
        parts.ok_or_else(|| {
            Error::invalid(
                "invalid cursor: it is not from this caller's list; start without a cursor",
            )
        })
    }
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prefix, cursor } = self;
        write!(f, "{}:{prefix}{cursor}", prefix.len())
    }
}
