//! Many requests in one, for whoever has many at a time: they share a round trip, and what they write a commit.

use std::str::FromStr as _;

use hyper::{HeaderMap, Method};
use leasehold::core::BootTime;
use leasehold::wire::{MAX_REQUESTS, Requests, Single};
use leasehold::{Error, Result, side_by_side};

use crate::access::caller::Caller;
use crate::answer::{self, Answer};
use crate::body::{self, Body};
use crate::connections::ClientAddress;
use crate::http1;
use crate::metrics::Asked;
use crate::query::Query;
use crate::refused::Refused;
use crate::route::Route;
use crate::service::{self, Call, Service};

/// Bytes of many requests.
const REQUESTS_BYTES: usize = 1024 * 1024;

/// A request, and who sent it among others.
struct Among<'a> {
    single: Single<'a>,
    caller: &'a Caller,
    headers: &'a HeaderMap,
    client_address: ClientAddress,
    arrival: BootTime,
}

impl Service {
    /// Answers many requests, each as if it had come by itself, side by side.
    pub(crate) async fn answer_many(&self, call: Call<'_>) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let text = call
            .body
            .read_text(REQUESTS_BYTES, self.config.body_timeout)
            .await?;
        let Requests { requests } = body::parse_json(&text)?;
        if requests.len() > MAX_REQUESTS {
            let detail = format!("more than {MAX_REQUESTS} requests in one: send several of them");
            return Err(Error::invalid(detail).into());
        }
        let answers = requests.into_iter().map(|single| {
            self.answer_among(Among {
                single,
                caller: &call.caller,
                // What came with all of them is not meant for each.
                headers: &http1::NO_HEADERS,
                client_address: call.client_address,
                arrival: call.arrival,
            })
        });
        let answers = side_by_side(answers).await;
        Ok(answer::many(self.deliverable(&call.caller, answers)))
    }

    async fn answer_among(&self, among: Among<'_>) -> Answer {
        let (mut asked, arrival) = (Asked::Other, among.arrival);
        let answer = self.dispatch_among(among, &mut asked).await;
        let trouble = answer.as_ref().err().map(Refused::trouble);
        let took = self.engine.host().boot_time().since(arrival);
        self.metrics.answered(asked, trouble, took);
        answer.unwrap_or_else(|refused| answer::problem(&refused))
    }

    async fn dispatch_among(&self, among: Among<'_>, asked: &mut Asked) -> Result<Answer, Refused> {
        among.caller.count(&self.config.limits)?;
        let Single {
            method,
            target,
            body,
        } = among.single;
        service::check_fragment(&target)?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*target, None),
        };
        let method = Method::from_str(&method)
            .map_err(|_| Error::invalid("the method is none: give something like `POST`"))?;
        let query = Query::parse(query)?;
        let route = Route::find(&method, path, &query)?;
        *asked = Asked::from(&route);
        if !route.is_about_one_name() {
            return Err(not_among_others());
        }
        if query.has("wait") {
            return Err(Error::invalid(
                "whoever waits keeps the others waiting: send it by itself",
            )
            .into());
        }
        let call = Call {
            query,
            caller: among.caller.clone(),
            headers: among.headers,
            client_address: among.client_address,
            body: Body::Here(body.into_owned().into_bytes()),
            arrival: among.arrival,
        };
        let witness = self.witness(&route, &call.caller);
        let answer = self.answer_to(route, call).await;
        service::tell(witness, &answer);
        answer
    }
}

/// Only what is about one name is: what tells of many would be too much, many times over.
pub(crate) fn not_among_others() -> Refused {
    Error::invalid("only what is about one name goes with others: send this by itself").into()
}
