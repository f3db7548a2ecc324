//! Every operation that is described, asked by every kind of caller: who is let in, and that nobody else is told anything.
//!
//! The requests are made from `/openapi.json`, so a new route is asked without anybody thinking of it. What it takes is
//! described from what the service checks; here the two are held against each other.

use std::collections::BTreeSet;

use leasehold_server::access::{AccessFile, Scope, Token};
use serde_json::{Value, json};

use crate::described::{Operation, Request, operations};
use crate::guarded::Guarded;
use crate::subscriber::Subscriber;

/// What anybody may ask, known or not. Whoever opens something else says so here.
const OPEN: [&str; 9] = [
    "alive",
    "dashboard",
    "docs",
    "docsScript",
    "docsStyle",
    "logIn",
    "logOut",
    "openapi",
    "ready",
];

const RIGHTS: [&str; 4] = ["read", "acquire", "break", "admin"];
/// Every request is about a name that starts like this…
const MINE: &str = "jobs-";
/// …and these are other people's.
const OTHERS: &str = "other/";

struct Caller {
    about: String,
    /// The header line that says who it is.
    header: String,
    /// The right that it has, and on what; `None` if it is not known.
    scope: Option<(&'static str, &'static str)>,
}

impl Caller {
    fn unknown(about: &str, header: String) -> Self {
        Self {
            about: about.to_owned(),
            header,
            scope: None,
        }
    }

    /// Whether it has one of these scopes.
    fn has(&self, scopes: &[String], name: &str) -> bool {
        let Some((right, prefix)) = self.scope else {
            return false;
        };
        let mut parts = scopes.iter().map(|scope| scope.split_once(':').unwrap());
        scopes.is_empty()
            || parts.any(|(wanted, on)| {
                let on = on.replace("{name}", name).replace("{prefix}", name);
                (right == wanted || right == "admin") && on.starts_with(prefix)
            })
    }

    /// What it may hear of in no answer at all.
    fn hidden(&self) -> &'static [&'static str] {
        match self.scope {
            Some((_, "")) => &[],
            Some((_, MINE)) => &[OTHERS],
            Some((_, OTHERS)) => &[MINE],
            _ => &[MINE, OTHERS],
        }
    }
}

/// A service with something to see of both, and everybody who may ask it.
async fn set_up() -> (Guarded, String, Vec<Caller>) {
    let guarded = Guarded::start().await;
    let create = |scopes: &[&str]| {
        let scopes: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        let created = AccessFile::create_token(&guarded.file(), "somebody", &scopes, None);
        created.unwrap().0.expose().to_owned()
    };
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let known = create(&[]);
    let mistyped = format!("{}x", &known[..known.len() - 1]);
    let other = Token::generate().unwrap();
    let mut callers = vec![
        Caller::unknown("no token", String::new()),
        Caller::unknown("no token at all", bearer("lh_wrong")),
        Caller::unknown("a token of elsewhere", bearer(other.expose())),
        Caller::unknown("a mistyped token", bearer(&mistyped)),
        Caller::unknown(
            "a cookie",
            format!("Cookie: leasehold-session={mistyped}\r\n"),
        ),
        Caller {
            about: "a token that may nothing".into(),
            header: bearer(&known),
            scope: Some(("nothing", "none")),
        },
    ];
    for prefix in ["", MINE, OTHERS] {
        for right in RIGHTS {
            let about = format!("{right}:{prefix}");
            let header = bearer(&create(&[&about]));
            let scope = Some((right, prefix));
            callers.push(Caller {
                about,
                header,
                scope,
            });
        }
    }
    // Once this one is known, so are all before it.
    let root = guarded.token("root", &["admin:"]).await;
    for whose in [MINE, OTHERS] {
        let hold = format!("/locks?name={whose}there&nonce={whose}nonce&owner={whose}owner&ttl=1h");
        let fence = guarded.post(&hold, &root).await.ok().fence();
        let update = format!("/locks/{fence}?name={whose}there&state={whose}state");
        let body = format!("{whose}body");
        let update = guarded.ask("POST", &update, &root, body.as_bytes());
        update.await.ok();
        let gate = format!("/gates?name={whose}there&every=1h&owner={whose}owner");
        guarded.post(&gate, &root).await.ok();
        let item = format!("/items?name={whose}item&state=REQUESTED");
        guarded.ask("PUT", &item, &root, b"").await.ok();
    }
    (guarded, root, callers)
}

async fn described(guarded: &Guarded) -> Vec<Operation> {
    operations(&guarded.ask("GET", "/openapi.json", "", b"").await.ok().json)
}

/// What is stored, but for what time alone changes.
async fn everything(guarded: &Guarded, root: &str) -> Value {
    let mut all = json!([]);
    for kind in ["locks", "gates"] {
        let target = format!("/{kind}?limit=1000");
        let mut page = guarded.ask("GET", &target, root, b"").await.ok().json;
        for lock in page[kind].as_array_mut().unwrap() {
            for holder in lock["holders"].as_array_mut().unwrap() {
                holder.as_object_mut().unwrap().remove("left");
            }
        }
        all.as_array_mut().unwrap().push(page);
    }
    all
}

/// Asks as this caller, sees that it is told nothing that is hidden from it, and gives status and body.
async fn asked(guarded: &Guarded, caller: &Caller, request: &Request) -> (u16, String) {
    let Request {
        method,
        target,
        body,
        streams,
    } = request;
    let about = format!("{}: {method} {target} {body}", caller.about);
    let answer = match streams {
        true => guarded.server.head_of(method, target, &caller.header).await,
        false => {
            let body = body.as_bytes();
            let asking = guarded
                .server
                .send_with(method, target, &caller.header, body);
            asking.await
        }
    };
    let told = format!("{}\n{}", answer.head, answer.body);
    for hidden in caller.hidden() {
        assert!(!told.contains(hidden), "{about}: {told}");
    }
    // Of many, each is answered for itself.
    let of_one = answer.json["leases"][0]["problem"]["status"].as_u64();
    let status = of_one.map_or(answer.status, |status| status as u16);
    (status, answer.body)
}

#[tokio::test]
async fn whoever_lacks_the_right_is_refused_told_nothing_and_changes_nothing() {
    let (guarded, root, callers) = set_up().await;
    let before = everything(&guarded, &root).await;
    let mut refused = 0;
    for operation in described(&guarded).await {
        let Some(scopes) = &operation.scopes else {
            continue;
        };
        for caller in &callers {
            let (there, absent) = (
                operation.requests(scopes, "jobs-there"),
                operation.requests(scopes, "jobs-absent"),
            );
            for ((scopes, there), (_, absent)) in there.iter().zip(&absent) {
                if caller.has(scopes, "jobs-there") {
                    continue;
                }
                let about = format!("{}: {there:?}", caller.about);
                let (status, body) = asked(&guarded, caller, there).await;
                let expected = if caller.scope.is_none() { 401 } else { 403 };
                assert_eq!(status, expected, "{about}: {body}");
                assert!(!body.contains(MINE), "{about}: {body}");
                let same = asked(&guarded, caller, absent).await;
                assert_eq!((status, body), same, "{about}: it tells what is there");
                refused += 1;
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
    assert_eq!(everything(&guarded, &root).await, before);
}

#[tokio::test]
async fn whoever_has_the_right_is_let_in() {
    let (guarded, _, callers) = set_up().await;
    let mut allowed = BTreeSet::new();
    for operation in described(&guarded).await {
        let Some(scopes) = &operation.scopes else {
            continue;
        };
        for caller in &callers {
            for name in ["jobs-there", "jobs-absent"] {
                for (scopes, request) in operation.requests(scopes, name) {
                    if !caller.has(&scopes, name) {
                        continue;
                    }
                    let (status, body) = asked(&guarded, caller, &request).await;
                    let about = format!("{}: {request:?}: {body}", caller.about);
                    assert!(matches!(status, 200 | 404 | 409 | 429), "{status} {about}");
                    if scopes.iter().any(|scope| scope.ends_with(':')) {
                        // What is about every name has none of them.
                        assert!(!body.contains(MINE) && !body.contains(OTHERS), "{about}");
                    }
                    allowed.extend(scopes);
                }
            }
        }
    }
    let of_names = RIGHTS.map(|right| format!("{right}:{{name}}"));
    assert!(
        of_names.iter().all(|scope| allowed.contains(scope)),
        "{allowed:?}"
    );
}

#[tokio::test]
async fn what_is_about_many_names_has_those_that_the_caller_may_know_and_no_others() {
    let (guarded, root, callers) = set_up().await;
    for operation in described(&guarded).await {
        let Some([scope]) = operation.scopes.as_deref() else {
            continue;
        };
        let Some((right, "{prefix}")) = scope.split_once(':') else {
            continue;
        };
        let request = operation.request_without_prefix();
        for caller in &callers {
            let Some((has, prefix)) = caller.scope else {
                continue;
            };
            let about = format!("{}: {request:?}", caller.about);
            let may = has == right || has == "admin";
            if request.streams && may && request.method == "GET" {
                hears_only(&guarded, &root, caller, prefix).await;
                continue;
            }
            let (status, body) = asked(&guarded, caller, &request).await;
            assert_eq!(status, if may { 200 } else { 403 }, "{about}: {body}");
            if may && request.method == "GET" {
                assert!(body.contains(&format!("{prefix}there")), "{about}: {body}");
            }
        }
    }
}

/// Something happens to both, and the subscriber hears of what starts with its prefix alone.
async fn hears_only(guarded: &Guarded, root: &str, caller: &Caller, prefix: &str) {
    let mut subscriber = Subscriber::with(&guarded.server, "", &caller.header).await;
    let told = [MINE, OTHERS, MINE, OTHERS].into_iter().enumerate();
    for (turn, whose) in told.clone() {
        let item = format!("/items?name={whose}told&state=TOLD");
        let body = turn.to_string();
        let put = guarded.ask("PUT", &item, root, body.as_bytes());
        put.await.ok();
    }
    for (_, whose) in told.filter(|(_, whose)| whose.starts_with(prefix)) {
        subscriber.expect("updated", &format!("{whose}told")).await;
    }
}

#[tokio::test]
async fn what_is_open_is_known_and_answers_everybody_alike() {
    let (guarded, _, callers) = set_up().await;
    let mut open = BTreeSet::new();
    for operation in described(&guarded).await {
        if operation.scopes.is_some() {
            continue;
        }
        let (_, request) = operation.requests(&[], "jobs-there").remove(0);
        let nobody = asked(&guarded, &callers[0], &request).await;
        // A login has its token in its body.
        let expected = if request.body.is_empty() { 200 } else { 401 };
        assert_eq!(nobody.0, expected, "{request:?}");
        for caller in &callers {
            let answer = asked(&guarded, caller, &request).await;
            assert_eq!(answer, nobody, "{}: {request:?}", caller.about);
        }
        open.insert(operation.id);
    }
    assert_eq!(open, OPEN.map(str::to_owned).into());
}
